"""Lowering: every ONNX node gets an implementation, and native ones become maps. Mutates the network."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast

import dace
from dace.sdfg import nodes
from dace.sdfg.utils import dfs_topological_sort

from daceml.errors import NoImplementationError
from daceml.onnx_ops.binding import Binding, bind
from daceml.onnx_ops.registry import KINDS, Implementation, Kind, implementations_of
from daceml.onnx_ops.schema.node import ONNXNode
from daceml.onnx_ops.tracing.tensor import Output, Tensor
from daceml.onnx_ops.tracing.trace import Refused, Trace, tracing
from daceml.sdfg.builder import Builder
from daceml.sdfg.origin import NodeOrigin
from daceml.sdfg.passes import PassRecord, Refusal
from daceml.sdfg.scalar import ElementTypeMismatch
from daceml.sdfg.sizes import Size, size_bytes
from daceml.sdfg.views import make_view, view_problem

if TYPE_CHECKING:
    from daceml.sdfg.network import Network


_ONLY_DECLARED = (
    "the shape of the result depends on data, and the model's word for it has to be checked at every run"
)


@dataclass(frozen=True, kw_only=True)
class Choice:
    """The implementation of one node.

    Attributes:
        implementation: the preferred one, or the first that applies.
        refusals: (title, reason) of those ranked higher.
        trace: what a native implementation records.
        alias: source and result of an alias implementation.
    """

    implementation: Implementation
    refusals: tuple[tuple[str, str], ...]
    trace: Trace | None = None
    alias: tuple[str, str] | None = None


@dataclass(frozen=True, kw_only=True)
class NodeReport:
    """What became of one node.

    Attributes:
        writes: arrays that the node's results, and a native implementation's intermediates, are in.
        chosen: title of the implementation.
        refusals: (title, reason) of implementations ranked higher.
    """

    op_type: str
    onnx_name: str
    module_path: str
    source: str
    writes: tuple[str, ...]
    chosen: str
    refusals: tuple[tuple[str, str], ...]


@dataclass(frozen=True, kw_only=True)
class LoweringReport:
    """One record a node, in the order of the network."""

    nodes: tuple[NodeReport, ...]

    def count(self, kind: Kind) -> int:
        """Nodes that got an implementation of a kind."""
        return sum(n.chosen.partition(":")[0] == kind for n in self.nodes)


def choose(node: ONNXNode, network: Network, *, allowed: Sequence[Kind] = KINDS) -> Choice:
    """The implementation that the network prefers, if it applies, or the first that does. Changes nothing.

    Raises:
        NoImplementationError: every implementation refused; the message has one line for each.
    """
    refusals: list[tuple[str, str]] = []
    preferred = network.preferred.get(node.title)
    known = implementations_of(node.op_type, node.domain)
    for implementation in sorted(known, key=lambda row: row.title != preferred):
        if implementation.kind not in allowed:
            refusals.append(
                (implementation.title, f"{implementation.kind} implementations are not allowed here")
            )
            continue
        if network.device not in implementation.devices:
            refusals.append((implementation.title, f"it does not run on {network.device}"))
            continue
        answer = _try(implementation, node, network)
        if isinstance(answer, str):
            refusals.append((implementation.title, answer))
            continue
        trace, alias = answer
        return Choice(implementation=implementation, refusals=tuple(refusals), trace=trace, alias=alias)
    reasons = [f"{title}: {reason}" for title, reason in refusals] or ["no implementation is registered"]
    raise NoImplementationError(
        f"no implementation of {node.schema.title} can run here",
        where=node.where(),
        why="\n".join(reasons),
        fix=f'allow onnxruntime implementations, or add @implements("{node.op_type}") under daceml/onnx_ops/',
    )


def refusal(implementation: Implementation, node: ONNXNode, network: Network) -> str | None:
    """Why an implementation does not apply to a node; None where it does. Changes nothing."""
    answer = _try(implementation, node, network)
    return answer if isinstance(answer, str) else None


def _try(
    implementation: Implementation, node: ONNXNode, network: Network
) -> str | tuple[Trace | None, tuple[str, str] | None]:
    """The trace or alias of an implementation that applies, else the reason why it does not."""
    trace = Trace(node.op_type, network.sdfg.arrays)
    binding = bind(node, network, trace)
    if (
        node.shapes_declared
        and implementation.kind != "onnxruntime"
        and not binding.shape_is_known(implementation)
    ):
        return _ONLY_DECLARED
    reason = binding.refusal(implementation)
    if reason is not None:
        return reason
    try:
        match implementation.kind:
            case "native":
                with tracing(trace):
                    binding.call(implementation.function)
                return trace, None
            case "alias":
                return _alias(implementation, binding, network)
            case _:
                return None, None
    except (Refused, ElementTypeMismatch) as refusal:
        return str(refusal)


def _alias(
    implementation: Implementation, binding: Binding, network: Network
) -> str | tuple[None, tuple[str, str]]:
    source, result = binding.call(implementation.function)
    assert isinstance(source, Tensor)
    assert isinstance(result, Output)
    assert source.array is not None
    if result.name in binding.interface:
        return "the result is an output of the network"
    if (problem := view_problem(network.sdfg, source.array, result.name)) is not None:
        return problem
    return None, (source.array, result.name)


def lower(network: Network, *, allowed: Sequence[Kind] = KINDS) -> LoweringReport:
    """Give every ONNX node an implementation. Mutates the network: native nodes become maps, aliases views.

    Args:
        network: its state holds ONNX nodes; nodes that have an implementation already are left alone.
        allowed: kinds to choose from.
    Raises:
        NoImplementationError: every implementation of some node refused.
    """
    builder = Builder(network.sdfg, network.state)
    reports: list[NodeReport] = []
    moved: list[Size] = []
    for node in [n for n in dfs_topological_sort(network.state) if isinstance(n, ONNXNode)]:
        if not node.implementation:
            moved.append(_operand_bytes(node, network))
            choice = choose(node, network, allowed=allowed)
            reports.append(apply(choice, node, network, builder))
    _remove_unread(network)
    network.passes.append(_record(reports, moved))
    return LoweringReport(nodes=tuple(reports))


def _operand_bytes(node: ONNXNode, network: Network) -> Size:
    """Bytes that a node moves where it runs on its own: every operand and every result once."""
    arrays = {e.data.data for e in network.state.all_edges(node) if e.data.data is not None}
    return sum((size_bytes(network.sdfg.arrays[array]) for array in sorted(arrays)), start=0)


def _record(reports: Sequence[NodeReport], moved: Sequence[Size]) -> PassRecord:
    return PassRecord(
        level="operators",
        name="Lowering",
        applied=dict(Counter(report.chosen.partition(":")[0] for report in reports).most_common()),
        refused=tuple(
            Refusal(
                subject=f"{report.op_type} {report.onnx_name}".rstrip(),
                reason=f"{title}: {reason}",
                size_bytes=node_bytes,
                where=", ".join(filter(None, (report.module_path, report.source))),
            )
            for report, node_bytes in zip(reports, moved, strict=True)
            for title, reason in report.refusals
        ),
        figures={"steps": len(reports), "unique_bytes": sum(moved, start=0)},
    )


def apply(choice: Choice, node: ONNXNode, network: Network, builder: Builder) -> NodeReport:
    """Write a choice into the network. Mutates it."""
    state = network.state
    results = [str(e.data.data) for e in state.out_edges(node)]
    node.implementation = choice.implementation.title
    intermediates: list[str] = []
    if choice.trace is not None or choice.alias is not None:
        state.remove_node(node)
    if choice.trace is not None:
        choice.trace.commit(builder)
        given = cast("int | None", node.lowest_index)
        lowest = {} if given is None else {"lowest": given}
        network.checks += [replace(check, where=node.where(), **lowest) for check in choice.trace.checks]
        intermediates = [i.name for i in choice.trace.intermediates]
    if choice.alias is not None:
        source, result = choice.alias
        make_view(network.sdfg, state, builder.node_of(source), builder.node_of(result))
    origin = NodeOrigin(operator=node.op_type, onnx_name=node.onnx_name, module_path=node.module_path)
    network.origins |= dict.fromkeys((*results, *intermediates), (origin,))
    return NodeReport(
        op_type=node.op_type,
        onnx_name=node.onnx_name,
        module_path=node.module_path,
        source=node.source,
        writes=(*results, *intermediates),
        chosen=choice.implementation.title,
        refusals=choice.refusals,
    )


def _remove_unread(network: Network) -> None:
    """Access nodes without edges are left where an implementation needed an operand's shape or value only."""
    kept = {*network.inputs, *network.outputs, *network.weights, *network.mutations}
    kept |= {check.array for check in network.checks}
    for node in list(network.state.data_nodes()):
        if network.state.degree(node) == 0 and node.data not in kept:
            network.state.remove_node(node)
            _forget(network, node.data)
    # Inputs that nothing reads stay declared, without a node in the state.
    for node in [n for n in network.state.data_nodes() if network.state.degree(n) == 0]:
        network.state.remove_node(node)


def _forget(network: Network, array: str) -> None:
    sdfg: dace.SDFG = network.sdfg
    network.constants.pop(array, None)
    if isinstance(sdfg.arrays.get(array), dace.data.Array) and not any(
        isinstance(n, nodes.AccessNode) and n.data == array for n in network.state.nodes()
    ):
        sdfg.remove_data(array, validate=False)
