"""Access nodes, added without the debug information that DaCe would read off the Python stack, and
scopes that go."""

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


def remove_scope(state: SDFGState, entry: nodes.MapEntry) -> None:
    """Take a top-level map out, with the registers that only it has."""
    inside = state.scope_subgraph(entry, include_entry=True, include_exit=True).nodes()
    registers = {n.data for n in inside if isinstance(n, nodes.AccessNode)}
    state.remove_nodes_from(inside)
    for array in registers:
        if not any(n.data == array for n in state.data_nodes()):
            state.sdfg.remove_data(array, validate=False)
