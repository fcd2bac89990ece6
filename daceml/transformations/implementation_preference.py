"""Operators get implementations of a kind that is not their first one, before the others are lowered."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from dace.sdfg.utils import dfs_topological_sort

from daceml.errors import NoImplementationError
from daceml.onnx_ops.lowering import NodeReport, apply, choose
from daceml.onnx_ops.registry import Kind
from daceml.onnx_ops.schema.node import ONNXNode
from daceml.sdfg.builder import Builder
from daceml.sdfg.network import Network
from daceml.sdfg.passes import PassRecord, Refusal


def prefer_implementations(network: Network, *, kinds: Mapping[str, Kind]) -> tuple[NodeReport, ...]:
    """Lower operators to a kind of implementation where one applies. Mutates the network.

    Args:
        kinds: operator -> kind.
    Returns:
        one record for each operator that got one.
    """
    builder = Builder(network.sdfg, network.state)
    reports: list[NodeReport] = []
    refused: list[Refusal] = []
    for node in [n for n in dfs_topological_sort(network.state) if isinstance(n, ONNXNode)]:
        if node.op_type not in kinds or node.implementation:
            continue
        try:
            choice = choose(node, network, allowed=(kinds[node.op_type],))
        except NoImplementationError as why:
            reason = why.why.splitlines()[-1]
            refused.append(Refusal(subject=f"{node.op_type} {node.onnx_name}".rstrip(), reason=reason))
            continue
        reports.append(apply(choice, node, network, builder))
    applied = Counter(report.chosen.partition(":")[0] for report in reports)
    network.passes.append(
        PassRecord(
            level="operators", name="Preference", applied=dict(applied.most_common()), refused=tuple(refused)
        )
    )
    return tuple(reports)
