"""remove_unread_operators: what nobody reads is not computed."""

from __future__ import annotations

from daceml.onnx_ops.schema.node import ONNXNode
from daceml.onnx_ops.schema.random_operators import draws
from daceml.sdfg.network import Network
from daceml.sdfg.passes import PassRecord
from daceml.transformations.rewriting.pattern import OperatorGraph
from daceml.transformations.rewriting.refusals import refused_node
from daceml.transformations.rewriting.replacement import remove_unread

_DRAWS = "it draws random numbers, and later draws follow it"


def remove_unread_operators(network: Network) -> int:
    """Remove operators without readers, and what only they read. Mutates the network, not lowered yet.

    Returns:
        how many operators went.
    """
    graph = OperatorGraph(network)
    before = [n for n in network.state.nodes() if isinstance(n, ONNXNode) and not n.implementation]
    kept = {n: _unread(n, graph) for n in before if draws(n)}
    for node in kept:
        graph.forget(node)  # what the graph does not know stays
    others = [n for n in before if n not in kept]
    remove_unread(graph, others)
    gone = sum(not graph.holds(n) for n in others)
    network.sdfg.reset_cfg_list()
    network.passes.append(
        PassRecord(
            level="coarse",
            name="remove_unread_operators",
            applied={"unread operators": gone} if gone else {},
            refused=tuple(refused_node(n, _DRAWS) for n, unread in kept.items() if unread),
        )
    )
    return gone


def _unread(node: ONNXNode, graph: OperatorGraph) -> bool:
    results = [a for a in graph.results(node) if a is not None]
    return not any(graph.is_result(a) or graph.readers(a) for a in results)
