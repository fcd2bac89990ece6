"""Which kernel of a case is wrong: every array of its programs compared with a program without fusion.

The reference runs on the processor, one loop for each operator: neither the passes over loops nor the code
generator for devices have touched it. Both programs return all of their arrays, which have the same names in
both. The kernels are the ones that the case runs: the code of a kernel contains neither names nor offsets.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from benchmarks.gpu.case import Case
from benchmarks.gpu.precisions import PRECISIONS
from benchmarks.gpu.reasons import reason_of
from benchmarks.gpu.subject import subject_of
from benchmarks.gpu.target import in_precision, target_of
from benchmarks.gpu.without_draws import without_draws
from benchmarks.peers import tensors_of
from daceml.codegen.planning.plan import make_plan
from daceml.codegen_cuda.kernel_unit import kernel_unit
from daceml.codegen_cuda.toolchain import device_architecture
from daceml.compiler.pipeline import optimised_network, training_networks
from daceml.compiler.stages.lowered_network import Optimised
from daceml.compiler.stages.stage_timer import Stages
from daceml.compiler.verification.scratch_program import scratch_program
from daceml.frontend.capture.arguments import Arguments
from daceml.frontend.capture.capture import capture
from daceml.onnx_ops.external import external_call
from daceml.runtime.records.gradients import GradientRecord, Wanted
from daceml.sdfg.outline import KernelCall
from daceml.transformations.hardware.cpu_schedule import schedule_maps
from daceml.transformations.recipe import Recipe
from daceml.transformations.standard import device_recipe

if TYPE_CHECKING:
    from daceml.sdfg.network import Network

# A kernel is wrong where its error is more than so many roundings, and so many times that of what it reads.
# Half types are rounded between loops by the reference, and not where loops are fused.
_ROUNDINGS = {torch.float64: 64.0, torch.float32: 64.0, torch.float16: 8.0, torch.bfloat16: 8.0}
_AMPLIFIED = 30.0

Values = dict[str, torch.Tensor]


@dataclass(frozen=True, kw_only=True)
class Programs:
    """The networks of a case, and what they run on.

    Attributes:
        parts: `inference`, or `forward` and `backward`.
        record: how the backward pass gets what forward has saved; None in inference.
    """

    parts: dict[str, Optimised]
    record: GradientRecord | None


def kernels(case: Case) -> dict[str, Any]:
    """Name the kernels of a case that are wrong.

    A launch that fails ends the search: its message names the kernel, and a device runs nothing afterwards.
    """
    outside: list[str] = []
    not_judged: list[str] = []
    checked = 0
    try:
        for part, kernel, fault in _verdicts(case):
            checked += 1
            if fault is None:
                not_judged.append(f"{kernel} ({part})")
            elif fault:
                outside.append(f"{kernel} ({part}): {fault}")
    except Exception as error:
        outside.append(reason_of(error))
    return {"kernels": checked, "not_judged": not_judged, "outside": outside}


def _verdicts(case: Case) -> Iterator[tuple[str, str, str | None]]:
    """Pass, kernel, and what is wrong with it, in the order of the launches: empty where nothing is.

    None stands for a kernel whose results the reference does not have.
    """
    target, (module, inputs) = target_of(emulated=case.emulated), _called(case)
    state = dict(module.named_parameters()) | dict(module.named_buffers())
    state = {name: tensor.detach().clone() for name, tensor in state.items()}
    fused = fused_programs(case)
    plain = _programs(module, inputs, fused.record is not None, _unfused(), on_device=False)
    given: Sequence[torch.Tensor] = tensors_of(inputs)
    for part in fused.parts:
        expected = _values(plain.parts[part], given, state, "cpu")
        seen = _values(fused.parts[part], given, state, target.device)
        yield from ((part, *verdict) for verdict in _compared(fused.parts[part].network, seen, expected))
        if part == "forward":
            given = _backward_inputs(plain, expected, given, state)


def fused_programs(case: Case) -> Programs:
    """The networks that a case runs, after all passes."""
    module, inputs = _called(case)
    training = case.mode == "training"
    return _programs(module, inputs, training, device_recipe(), on_device=not case.emulated)


def _called(case: Case) -> tuple[torch.nn.Module, tuple[Any, ...]]:
    """The module of a case and its inputs, on the processor."""
    subject, precision, host = subject_of(case), PRECISIONS[case.precision], target_of(emulated=True)
    module = in_precision(subject.spec, precision, host).train(subject.train_mode)
    return without_draws(module), host.example(subject.spec, precision)


def _unfused() -> Recipe:
    """The passes over operators alone."""
    return device_recipe().at("coarse", "operators") + Recipe(schedule_maps)


def _programs(
    module: torch.nn.Module, inputs: tuple[Any, ...], training: bool, recipe: Recipe, *, on_device: bool
) -> Programs:
    exported = capture(module, Arguments(inputs, {}), autocast=(None, None), gradients=training).program
    where: dict[str, Any] = {"device": "cuda", "architecture": device_architecture()} if on_device else {}
    if not training:
        return Programs(parts={"inference": optimised_network(exported, recipe=recipe, **where)}, record=None)
    wanted = Wanted(
        inputs=tuple(x.is_floating_point() for x in tensors_of(inputs)),
        state=tuple(name for name, parameter in module.named_parameters() if parameter.requires_grad),
    )
    (forward, backward), record = training_networks(exported, wanted, recipe=recipe, **where)
    return Programs(parts={"forward": forward, "backward": backward}, record=record)


def _values(
    made: Optimised, inputs: Sequence[torch.Tensor], state: Mapping[str, torch.Tensor], device: str
) -> Values:
    """Every array that a network computes."""
    network = copy.deepcopy(made.network)
    written = _written(network)
    network.outputs = (*network.outputs, *(array for array in written if array not in network.outputs))
    for array in written:
        network.sdfg.arrays[array].transient = False
    placed = {name: tensor.to(device, copy=True) for name, tensor in state.items()}
    kept = Optimised(network=network, lowering=made.lowering, unfused=made.unfused)
    with scratch_program(kept, Stages(), lambda _: placed) as program, torch.no_grad():
        outputs = program([x.to(device, copy=True) for x in inputs])
    return {name: value.cpu() for name, value in zip(network.outputs, outputs, strict=True)}


def _written(network: Network) -> list[str]:
    """Arrays that kernels write and nothing but the network itself reads."""
    arrays = network.sdfg.arrays
    plan = make_plan(network, external_call, given=())
    written = (a for s in plan.steps if isinstance(s.action, KernelCall) for a in s.action.writes)
    return [array for array in dict.fromkeys(written) if arrays[array].transient]


def _backward_inputs(
    plain: Programs, values: Values, inputs: Sequence[torch.Tensor], state: Mapping[str, torch.Tensor]
) -> list[torch.Tensor]:
    """Cotangents, saved arrays, and what is read again, in the order of the backward network."""
    record, names = plain.record, plain.parts["forward"].network.outputs
    assert record is not None
    outputs = [values[name] for name in names]
    generator = torch.Generator().manual_seed(0)
    given = [
        torch.randn(outputs[place].shape, generator=generator).to(outputs[place])
        for place in record.cotangents
    ]
    given += [outputs[place] for place in record.saved]
    return given + [inputs[at] if isinstance(at, int) else state[at] for _, at in record.reads]


def _compared(network: Network, seen: Values, expected: Values) -> Iterator[tuple[str, str | None]]:
    errors = {name: _error(seen[name], expected[name]) for name in seen if name in expected}
    for step in make_plan(network, external_call, given=()).steps:
        if not isinstance(step.action, KernelCall):
            continue
        call = step.action
        function = kernel_unit(call.kernel).launched.function if call.kernel.on_device else call.kernel.name
        read = max((errors.get(array, 0.0) for array in call.reads if array not in call.writes), default=0.0)
        faults = [
            f"error {errors[array]:.1e} of {network.signature.get(array, array)}, at most {limit:.1e}"
            for array in call.writes
            if array in errors and errors[array] > (limit := max(_limit(expected[array]), _AMPLIFIED * read))
        ]
        yield function, "; ".join(faults) if any(array in errors for array in call.writes) else None


def _limit(like: torch.Tensor) -> float:
    return _ROUNDINGS[like.dtype] * torch.finfo(like.dtype).eps if like.is_floating_point() else 0.0


def _error(seen: torch.Tensor, expected: torch.Tensor) -> float:
    """||y - expected|| / ||expected||; infinite where a number stands on one side only."""
    if not seen.is_floating_point():
        return float((seen != expected).double().mean()) if seen.numel() else 0.0
    ours, theirs = seen.double(), expected.double()
    finite = torch.isfinite(ours) & torch.isfinite(theirs)
    same = (ours == theirs) | (torch.isnan(ours) & torch.isnan(theirs))
    if bool((~finite & ~same).any()):
        return float("inf")
    scale = float(theirs[finite].norm())
    apart = float((ours[finite] - theirs[finite]).norm())
    return apart / scale if scale else float(apart > 0.0)
