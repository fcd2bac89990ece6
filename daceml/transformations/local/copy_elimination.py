"""Results that are copies of another array: who writes that array writes the result.

Where a call writes a matrix that the result is another shape of, as the last layer of a language model does,
the matrix becomes a view of the result. Two gradients that are one number, as those of a sum's operands, are
one array with a copy of it; a reader of the first then reads the result.
"""

from __future__ import annotations

import copy
from collections import Counter
from typing import Any

import dace
import sympy
from dace.memlet import Memlet
from dace.sdfg import nodes

from daceml.sdfg.lifting import NotLiftable, lift
from daceml.sdfg.network import Network
from daceml.sdfg.passes import PassRecord
from daceml.sdfg.scalar import HALF, Scalar
from daceml.sdfg.scopes import exit_of, scope_nodes, top_maps
from daceml.sdfg.sizes import product, row_major, size


def eliminate_copies(network: Network) -> int:
    """Let results be written where a copy of them was made. Mutates the SDFG, which is lowered.

    Returns:
        how many copies disappeared.
    """
    state = network.state
    count, places = 0, _places(network)
    for entry in top_maps(state):
        ends = _copied(network, entry, places)
        if ends is None:
            continue
        mine, theirs = (network.sdfg.arrays[node.data] for node in ends)
        if mine.shape == theirs.shape:
            _join(network, entry, *ends)
        else:
            _write_through(network, entry, *ends)
        count, places = count + 1, _places(network)
    applied = {"eliminate_copies": count} if count else {}
    network.passes.append(PassRecord(level="local", name="eliminate_copies", applied=applied))
    return count


def _places(network: Network) -> Counter[str]:
    """How many access nodes an array has outside of maps."""
    scopes = network.state.scope_dict()
    return Counter(node.data for node in network.state.data_nodes() if scopes[node] is None)


def _copied(
    network: Network, entry: nodes.MapEntry, places: Counter[str]
) -> tuple[nodes.AccessNode, nodes.AccessNode] | None:
    """Where a map reads and where it writes, if it does nothing but copy an array of the program's own into a
    result."""
    state, arrays = network.state, network.sdfg.arrays
    reads, writes = state.in_edges(entry), state.out_edges(exit_of(state, entry))
    if len(reads) != 1 or len(writes) != 1 or len(scope_nodes(state, entry)) != 3:
        return None
    source, target = reads[0].src, writes[0].dst
    if not isinstance(source, nodes.AccessNode) or not isinstance(target, nodes.AccessNode):
        return None
    mine, theirs = arrays[source.data], arrays[target.data]
    kept = {*network.outputs, *network.mutations}
    if isinstance(mine, dace.data.View):
        return None
    own = mine.transient and source.data not in kept
    if not own or target.data not in network.outputs or target.data in network.mutations:
        return None
    if mine.dtype != theirs.dtype:
        return None
    if (mine.shape, mine.strides) != (theirs.shape, theirs.strides) and not _is_written_by_a_call(
        network, source, target
    ):
        return None
    if any(places[array] != 1 for array in (source.data, target.data)):
        return None
    if any(check.array == source.data for check in network.checks) or state.in_degree(target) != 1:
        return None
    return (source, target) if _is_copy(network, entry, source.data) else None


def _is_written_by_a_call(network: Network, source: nodes.AccessNode, target: nodes.AccessNode) -> bool:
    """Whether a call writes a matrix, and both arrays are in row-major order."""
    sdfg = network.sdfg
    writers = [edge.src for edge in network.state.in_edges(source)]
    return (
        len(sdfg.arrays[source.data].shape) == 2  # of more dimensions, it may get another order later
        and [isinstance(writer, nodes.LibraryNode) for writer in writers] == [True]
        and all(_is_row_major(sdfg.arrays[node.data]) for node in (source, target))
    )


def _is_row_major(desc: dace.data.Data) -> bool:
    return tuple(map(str, desc.strides)) == tuple(map(str, row_major(size(s) for s in desc.shape)))


def _is_copy(network: Network, entry: nodes.MapEntry, source: str) -> bool:
    sdfg = network.sdfg
    try:
        (statement,) = lift(sdfg, network.state, entry)
    except (NotLiftable, ValueError):
        return False
    mine, theirs = sdfg.arrays[source], sdfg.arrays[statement.target]
    value = _without_casts(statement.value, mine.dtype)
    given, taken, written = (
        str(sympy.expand(product(sizes)))
        for sizes in (map(size, mine.shape), statement.extents, map(size, theirs.shape))
    )
    return (
        statement.resolves is None
        and value.op == "read"
        and value.data[0] == source
        and given == taken == written  # all of both: the first rows of a matrix are a smaller result
        and _offset(value.data[1], mine) == _offset(statement.index, theirs)
    )


def _offset(index: tuple[Any, ...], desc: dace.data.Data) -> Any:
    """Where an element lies, in elements."""
    return sympy.expand(sum(i * s for i, s in zip(index, desc.strides, strict=True)))


def _without_casts(value: Scalar, dtype: dace.typeclass) -> Scalar:
    """What is left without conversions that lose nothing of this type: it is computed with in a wider one."""
    while value.op == "cast" and (value.dtype == dtype or (dtype in HALF and value.dtype == dace.float32)):
        (value,) = value.args
    return value


def _join(
    network: Network, entry: nodes.MapEntry, source: nodes.AccessNode, target: nodes.AccessNode
) -> None:
    state, sdfg = network.state, network.sdfg
    state.remove_nodes_from(scope_nodes(state, entry))
    for edge in list(state.out_edges(target)):
        state.add_edge(source, edge.src_conn, edge.dst, edge.dst_conn, edge.data)
    state.remove_node(target)
    old, new = source.data, target.data
    for node in state.data_nodes():
        if node.data == old:
            node.data = new
    for edge in state.edges():
        if edge.data.data == old:
            edge.data.data = new
    sdfg.remove_data(old, validate=False)
    network.scalars -= {old}


def _write_through(
    network: Network, entry: nodes.MapEntry, source: nodes.AccessNode, target: nodes.AccessNode
) -> None:
    """Let an array be a view of the result that had a copy of it."""
    state, sdfg = network.state, network.sdfg
    state.remove_nodes_from(scope_nodes(state, entry))
    mine, whole = sdfg.arrays[source.data], Memlet.from_array(target.data, sdfg.arrays[target.data])
    sdfg.remove_data(source.data, validate=False)
    sdfg.add_view(source.data, mine.shape, mine.dtype, storage=mine.storage)
    if readers := state.out_edges(source):
        # a view that is written has one edge out, to what it views: others read another one
        name, _ = sdfg.add_view(
            f"{source.data}_read", mine.shape, mine.dtype, mine.storage, find_new_name=True
        )
        read = state.add_access(name)
        read.add_in_connector("views", force=True)
        state.add_edge(target, None, read, "views", copy.deepcopy(whole))
        for edge in readers:
            for one in state.memlet_tree(edge):
                if one.data.data == source.data:
                    one.data.data = name
            state.add_edge(read, edge.src_conn, edge.dst, edge.dst_conn, edge.data)
            state.remove_edge(edge)
    source.add_out_connector("views", force=True)
    state.add_edge(source, "views", target, None, whole)
