"""What a compilation leaves behind for `explain` and for later processes: the manifest of a program."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from daceml.codegen.planning.step_costs import step_cost
from daceml.compiler.stages.launch_records import BuiltLaunch, launch_record
from daceml.compiler.stages.level_records import level_records
from daceml.runtime.records.manifest import (
    EXAMPLE_SIZE,
    ConstantRecord,
    Manifest,
    PreparedRecord,
    StepRecord,
    TensorRecord,
)
from daceml.sdfg.costs import Cost
from daceml.sdfg.element_codes import torch_code
from daceml.sdfg.external import FallbackCall
from daceml.sdfg.outline import KernelCall
from daceml.sdfg.sizes import size, text
from daceml.sdfg.tensor_lists import ListCall

if TYPE_CHECKING:
    from daceml.codegen.planning.plan import Plan
    from daceml.codegen.planning.steps import Step
    from daceml.onnx_ops.lowering import LoweringReport, NodeReport
    from daceml.sdfg.network import Network
    from daceml.sdfg.origin import NodeOrigin


def make_manifest(
    plan: Plan,
    lowering: LoweringReport,
    *,
    absorbed: Mapping[str, tuple[str, ...]],
    constants: tuple[ConstantRecord, ...],
    fallbacks: tuple[int, ...],
    launches: Mapping[str, BuiltLaunch] | None = None,
) -> Manifest:
    """The manifest of a plan, without the facts that only the caller knows.

    Args:
        absorbed: array -> arrays that disappeared into the map that writes it.
        launches: name of a kernel for a device -> how it is launched, and what its compiler said.
    """
    network = plan.network
    by_array = {array: report for report in lowering.nodes for array in report.writes}
    reports = {
        array: [by_array[a] for a in (array, *absorbed.get(array, ())) if a in by_array] for array in by_array
    }
    sizes = dict.fromkeys(network.sdfg.symbols, EXAMPLE_SIZE)
    workspace = plan.layout.size_bytes
    return Manifest(
        inputs=tuple(_tensor(a, network) for a in network.inputs),
        outputs=tuple(_tensor(a, network) for a in network.outputs),
        weights=tuple(network.weights[a] for a in plan.weights if a in network.weights),
        constants=constants,
        mutated=tuple(network.weights[b] for b in network.mutations.values()),
        symbols=tuple(sorted(network.sdfg.symbols)),
        steps=tuple(
            replace(
                _step(s, network, reports, sizes),
                nodes=_nodes(s, network),
                launch=launch_record(s.action, launches or {}, sizes),
            )
            for s in plan.steps
        ),
        workspace_bytes=Cost(unique_bytes=workspace).at(sizes).unique_bytes,  # pyright: ignore[reportArgumentType]
        kernels=len(plan.kernels),
        fallbacks=fallbacks,
        prepared=_prepared(network, frozenset(plan.weights)),
        levels=level_records(plan, lowering, sizes),
    )


def save_fallbacks(plan: Plan, folder: Path) -> tuple[int, ...]:
    """Write the one-node models of the steps that ONNX Runtime executes; returns these steps."""
    found: list[int] = []
    for i, step in enumerate(plan.steps):
        if isinstance(step.action, FallbackCall):
            (folder / f"fallback_{i}.onnx").write_bytes(step.action.model)
            found.append(i)
    return tuple(found)


def _prepared(network: Network, read: frozenset[str]) -> tuple[PreparedRecord, ...]:
    places = {array: place for place, array in enumerate(network.prepared)}
    keys = {"": None, **network.weights, **places}
    return tuple(
        PreparedRecord(
            function=made.function,
            keys=tuple(keys[source] for source in made.sources),
            numbers=made.numbers,
            reals=made.reals,
            read=array in read,
        )
        for array, made in network.prepared.items()
    )


def _tensor(array: str, network: Network) -> TensorRecord:
    desc = network.sdfg.arrays[array]
    shape = () if array in network.scalars else tuple(size(s) for s in desc.shape)
    return TensorRecord(
        name=network.signature.get(array, array),
        dtype=torch_code(desc.dtype),
        shape=tuple(s if isinstance(s, int) else text(s) for s in shape),
    )


def _step(
    step: Step, network: Network, reports: Mapping[str, Sequence[NodeReport]], sizes: dict[str, int]
) -> StepRecord:
    action = step.action
    origins = [report for a in step.writes for report in reports.get(a, ())]
    refusals = [f"{title}: {reason}" for origin in origins for title, reason in origin.refusals]
    kind, cost = step_cost(step, network)
    amounts = cost.at(sizes)
    return StepRecord(
        kind=kind,
        label=step.label,
        kernel=action.kernel.name if isinstance(action, KernelCall | ListCall) else "",
        module_path=step.module_path or _joined(origin.module_path for origin in origins),
        source=step.source or _joined(origin.source for origin in origins),
        implementation=_joined(origin.chosen for origin in origins),
        refusals=tuple(dict.fromkeys(refusals)),
        unique_bytes=amounts.unique_bytes,  # pyright: ignore[reportArgumentType]
        total_bytes=amounts.total_bytes,  # pyright: ignore[reportArgumentType]
        flops=amounts.flops,  # pyright: ignore[reportArgumentType]
        special_functions=amounts.special_functions,  # pyright: ignore[reportArgumentType]
    )


def _nodes(step: Step, network: Network) -> tuple[NodeOrigin, ...]:
    """The nodes of a step, each once, whether fusion or a pass before the last lowering made it of them."""
    return tuple(dict.fromkeys(origin for a in step.writes for origin in network.origins.get(a, ())))


def _joined(parts: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(filter(None, parts)))
