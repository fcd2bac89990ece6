"""Access nodes, added without the debug information that DaCe would read off the Python stack."""

from __future__ import annotations

from dace import SDFGState
from dace.sdfg import nodes


def add_access(state: SDFGState, array: str) -> nodes.AccessNode:
    """A new access node of an array.

    `state.add_access` inspects the whole Python stack to record its caller: milliseconds a node, and more in
    a program that was started with `python -m`.
    """
    node = nodes.AccessNode(array)
    state.add_node(node)
    return node


def outer_accesses(state: SDFGState) -> dict[str, nodes.AccessNode]:
    """Array -> an access node of it outside every map; a scatter has one of its target inside, too."""
    every = list(state.data_nodes())
    found = {node.data: node for node in every}
    if len(found) == len(every):
        return found
    scopes = state.scope_dict()
    return {node.data: node for node in every if scopes[node] is None}
