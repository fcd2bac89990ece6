"""use_row_positions: positions that are the same all along a row look up, or add to, whole rows.

ScatterElements(x[n, …], Expand(i[e, 1, …]), u[e, …], axis=0)   ->   ScatterND(x, i[e, 1], u)
GatherElements(x[n, …], Expand(i[e, 1, …]), axis=0)             ->   Gather(x, i[e])

Sums over the edges of a graph are written so. Element by element, every position is expanded, checked and
read for each number of a row; row by row, a row is a loop along memory.
"""

from __future__ import annotations

from dace.sdfg.utils import dfs_topological_sort

from daceml.onnx_ops.schema.node import ONNXNode
from daceml.sdfg.network import Network
from daceml.sdfg.passes import PassRecord, Refusal
from daceml.transformations.rewriting.pattern import OperatorGraph
from daceml.transformations.rewriting.refusals import refused_result
from daceml.transformations.rewriting.replacement import ReplacementOps, Value, remove_unread, take_place

NAME = "use_row_positions"
_ELEMENTS = {"ScatterElements": "scatters of rows", "GatherElements": "gathers of rows"}


def use_row_positions(network: Network) -> int:
    """Let scatters and gathers whose positions are those of rows take rows. Mutates the network, which is not
    lowered yet.

    Returns:
        how many were changed.
    """
    graph = OperatorGraph(network)
    counts: dict[str, int] = {}
    refused: list[Refusal] = []
    for node in [n for n in dfs_topological_sort(network.state) if isinstance(n, ONNXNode)]:
        if node.op_type not in _ELEMENTS or node.domain or node.implementation or node.shapes_declared:
            continue
        positions = _row_positions(graph, node)
        if isinstance(positions, str):
            refused.append(refused_result(node, positions, graph))
            continue
        _replace(graph, node, positions)
        counts[_ELEMENTS[node.op_type]] = counts.get(_ELEMENTS[node.op_type], 0) + 1
    network.sdfg.reset_cfg_list()
    network.passes.append(PassRecord(level="coarse", name=NAME, applied=counts, refused=tuple(refused)))
    return sum(counts.values())


def _row_positions(graph: OperatorGraph, node: ONNXNode) -> Value | str:
    """One position for each row, as [rows, 1, …]; or why there is none."""
    data, positions, *updates = (Value(a, graph) for a in graph.operands(node) if a is not None)
    if data.rank < 2 or node.attribute_values().get("axis", 0) % data.rank != 0:
        return "its positions do not run along the first of several dimensions"
    writer = graph.writer.get(positions.array)
    if writer is None or writer.op_type != "Expand" or writer.domain or writer.shapes_declared:
        return "its positions differ along a row"
    source = Value(graph.operands(writer)[0] or "", graph)
    if source.rank != data.rank or any(n != 1 for n in source.shape[1:]):
        return "its positions differ along a row"
    if source.shape[0] != positions.shape[0] or positions.shape[1:] != data.shape[1:]:
        return "it reads part of each row"
    if 0 in (*data.shape, *positions.shape):
        return "it is empty"
    return source if all(u.shape == positions.shape for u in updates) else "it uses part of its updates"


def _replace(graph: OperatorGraph, node: ONNXNode, positions: Value) -> None:
    (result,) = (Value(a, graph) for a in graph.results(node) if a is not None)
    data, _, *updates = (Value(a, graph) for a in graph.operands(node) if a is not None)
    op = ReplacementOps(graph, node, NAME)
    rows = positions.shape[0]
    if node.op_type == "GatherElements":
        made = op.Gather(data, op.Reshape(positions, [-1], shape=(rows,)), axis=0, shape=result.shape)
    else:
        reduction = node.attribute_values().get("reduction") or "none"
        places = op.Reshape(positions, [-1, 1], shape=(rows, 1))
        made = op.ScatterND(data, places, *updates, reduction=reduction, shape=result.shape)
    for new in op.made:
        new.lowest_index = node.lowest_index
    take_place(graph, result.array, made.array)
    remove_unread(graph, [node])
