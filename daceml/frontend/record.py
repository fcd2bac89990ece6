"""What a compilation leaves behind for `explain` and for later processes: the manifest of a program."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from daceml.runtime.element_codes import torch_code
from daceml.runtime.manifest import EXAMPLE_SIZE, ConstantRecord, Manifest, StepRecord, TensorRecord
from daceml.sdfg.costs import Cost
from daceml.sdfg.external import AtenCall, FallbackCall
from daceml.sdfg.network_costs import arrays_bytes, call_cost, external_cost
from daceml.sdfg.outline import KernelCall
from daceml.sdfg.sizes import size

if TYPE_CHECKING:
    from daceml.onnx_ops.lowering import LoweringReport, NodeReport
    from daceml.runtime.plan import Plan, Step
    from daceml.sdfg.network import Network


def make_manifest(
    plan: Plan, lowering: LoweringReport, *, constants: tuple[ConstantRecord, ...], fallbacks: tuple[int, ...]
) -> Manifest:
    """The manifest of a plan, without the facts that only the caller knows."""
    network = plan.network
    reports = {array: report for report in lowering.nodes for array in report.writes}
    sizes = dict.fromkeys(network.sdfg.symbols, EXAMPLE_SIZE)
    workspace = plan.layout.size_bytes
    return Manifest(
        inputs=tuple(_tensor(a, network) for a in network.inputs),
        outputs=tuple(_tensor(a, network) for a in network.outputs),
        weights=tuple(network.weights[a] for a in plan.weights if a in network.weights),
        constants=constants,
        mutated=tuple(network.weights[b] for b in network.mutations.values()),
        symbols=tuple(sorted(network.sdfg.symbols)),
        steps=tuple(_step(s, network, reports, sizes) for s in plan.steps),
        workspace_bytes=Cost(unique_bytes=workspace).at(sizes).unique_bytes,  # pyright: ignore[reportArgumentType]
        kernels=len(plan.kernels),
        fallbacks=fallbacks,
    )


def save_fallbacks(plan: Plan, folder: Path) -> tuple[int, ...]:
    """Write the one-node models of the steps that ONNX Runtime executes; returns these steps."""
    found: list[int] = []
    for i, step in enumerate(plan.steps):
        if isinstance(step.action, FallbackCall):
            (folder / f"fallback_{i}.onnx").write_bytes(step.action.model)
            found.append(i)
    return tuple(found)


def _tensor(array: str, network: Network) -> TensorRecord:
    desc = network.sdfg.arrays[array]
    shape = () if array in network.scalars else tuple(size(s) for s in desc.shape)
    return TensorRecord(
        name=network.signature.get(array, array),
        dtype=torch_code(desc.dtype),
        shape=tuple(s if isinstance(s, int) else str(s) for s in shape),
    )


def _step(step: Step, network: Network, reports: dict[str, NodeReport], sizes: dict[str, int]) -> StepRecord:
    action = step.action
    report = next((reports[a] for a in step.writes if a in reports), None)
    match action:
        case KernelCall():
            kind, cost = "kernel", call_cost(action)
        case AtenCall():
            kind, cost = "aten", external_cost(action, network)
        case FallbackCall():
            kind, cost = "onnxruntime", external_cost(action, network)
        case _:
            moved = 2 * arrays_bytes([action.source], network)
            kind, cost = "copy", Cost(unique_bytes=moved, total_bytes=moved)
    amounts = cost.at(sizes)
    return StepRecord(
        kind=kind,
        label=step.label,
        kernel=action.kernel.name if isinstance(action, KernelCall) else "",
        module_path=step.module_path or (report.module_path if report else ""),
        source=step.source or (report.source if report else ""),
        implementation=report.chosen if report else "",
        refusals=tuple(f"{title}: {reason}" for title, reason in report.refusals) if report else (),
        unique_bytes=amounts.unique_bytes,  # pyright: ignore[reportArgumentType]
        total_bytes=amounts.total_bytes,  # pyright: ignore[reportArgumentType]
        flops=amounts.flops,  # pyright: ignore[reportArgumentType]
        special_functions=amounts.special_functions,  # pyright: ignore[reportArgumentType]
    )
