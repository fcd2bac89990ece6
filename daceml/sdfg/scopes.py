"""Maps of a state: those outside all others, and the nodes of one, for which DaCe goes through all nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dace import SDFGState
from dace.sdfg import nodes


def top_maps(state: SDFGState) -> list[nodes.MapEntry]:
    """The maps that are in no other map."""
    scopes = state.scope_dict()
    return [n for n in state.nodes() if isinstance(n, nodes.MapEntry) and scopes[n] is None]


def scope_nodes(state: SDFGState, entry: nodes.MapEntry) -> list[nodes.Node]:
    """Nodes from `entry` to its exit, both included, in a topological order that only the graph decides."""

    def is_end(node: nodes.Node) -> bool:
        return isinstance(node, nodes.MapExit) and node.map is entry.map

    inside: set[nodes.Node] = {entry}
    stack: list[nodes.Node] = [entry]
    while stack:
        node = stack.pop()
        if is_end(node):
            continue
        for edge in state.out_edges(node):
            if edge.dst not in inside:
                inside.add(edge.dst)
                stack.append(edge.dst)
    waiting = {n: sum(e.src in inside for e in state.in_edges(n)) for n in inside}
    waiting[entry] = 0
    order: list[nodes.Node] = []
    ready: list[nodes.Node] = [entry]
    while ready:
        node = ready.pop(0)
        order.append(node)
        if is_end(node):
            continue
        for edge in state.out_edges(node):
            waiting[edge.dst] -= 1
            if waiting[edge.dst] == 0:
                ready.append(edge.dst)
    return order


def exit_of(state: SDFGState, entry: nodes.MapEntry) -> nodes.MapExit:
    """The end of a map."""
    return exit_among(scope_nodes(state, entry), entry)


def exit_among(inside: Sequence[nodes.Node], entry: nodes.MapEntry) -> nodes.MapExit:
    """The end of a map, which is one of these nodes, and late rather than early."""
    return next(n for n in reversed(inside) if isinstance(n, nodes.MapExit) and n.map is entry.map)


def nested_nodes(state: SDFGState, entry: nodes.MapEntry) -> dict[nodes.MapEntry, list[nodes.Node]]:
    """For a map and each map inside it, what stands directly in it, ends included, in `scope_nodes`' order.

    Looks at nothing else, where `SDFGState.scope_children` walks the whole state after each change.
    """
    inside = scope_nodes(state, entry)
    within: dict[nodes.Node, nodes.MapEntry] = {}
    children: dict[nodes.MapEntry, list[nodes.Node]] = {}
    entries = {n.map: n for n in inside if isinstance(n, nodes.MapEntry)}
    for node in inside:
        if node is entry:
            children[entry] = []
            continue
        if isinstance(node, nodes.MapExit):
            around = entries[node.map]
        else:
            before = next(e.src for e in state.in_edges(node))
            around = _after(before, entries, within)
        within[node] = around
        children[around].append(node)
        if isinstance(node, nodes.MapEntry):
            children[node] = []
    return children


def _after(
    node: nodes.Node, entries: Mapping[nodes.Map, nodes.MapEntry], within: Mapping[nodes.Node, nodes.MapEntry]
) -> nodes.MapEntry:
    """The map in which stands what comes after a node."""
    if isinstance(node, nodes.MapEntry):
        return node
    return within[entries[node.map]] if isinstance(node, nodes.MapExit) else within[node]


def remove_scope(state: SDFGState, entry: nodes.MapEntry) -> None:
    """Take a top-level map out, with the registers that only it has."""
    inside = scope_nodes(state, entry)
    registers = {n.data for n in inside if isinstance(n, nodes.AccessNode)}
    state.remove_nodes_from(inside)
    for array in registers:
        if not any(n.data == array for n in state.data_nodes()):
            state.sdfg.remove_data(array, validate=False)
