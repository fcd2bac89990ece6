"""One training step of one network, compared with eager: outputs, every gradient, and every buffer."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from benchmarks.bars import Bar
from benchmarks.metric import Accuracy, compare
from benchmarks.models import ModelSpec
from benchmarks.models.spec import as_float64, in_float64
from benchmarks.outputs import named_outputs
from benchmarks.parity_static import CompileFunction, accuracy_bars, accuracy_line, accuracy_row
from benchmarks.replayed_draws import RecordedDraws, ReplayedDraws


@dataclass(frozen=True, kw_only=True)
class Programs:
    """Steps of the two programs that a compiled training step ran, by kind.

    Attributes:
        forward, backward: kind of a step -> how many.
    """

    forward: dict[str, int]
    backward: dict[str, int]

    @property
    def onnxruntime(self) -> int:
        return sum(ran.get("onnxruntime", 0) for ran in (self.forward, self.backward))


# From what a compile function returned, and inputs; raises where a backward program did not run.
ProgramsFunction = Callable[[Callable[..., Any], tuple[Any, ...]], Programs]


@dataclass(frozen=True, kw_only=True)
class TrainingParity:
    """What was seen of one network.

    Attributes:
        model: its name.
        accuracy: over all outputs, gradients and buffers of all seeds.
        programs: of the last seed.
        onnxruntime_nodes: of forward and backward, the most of a seed.
        missing: gradients that eager has and the compiled module does not, or the other way round.
        reordered: where a tensor is outside, how many eager's own are that computes the same seeds in another
            order: a relu whose operand is 0 within the rounding decides for a whole gradient.
    """

    model: str
    accuracy: Accuracy
    programs: Programs
    onnxruntime_nodes: int
    missing: tuple[str, ...]
    reordered: dict[str, int]

    def bars(self) -> list[Bar]:
        what = f"{self.model}, training"
        return [
            *accuracy_bars(what, self.accuracy),
            Bar(name=f"{what}: nodes left to onnxruntime", figure=self.onnxruntime_nodes, limit=0),
            Bar(
                name=f"{what}: gradients that only one of eager and daceml has",
                figure=len(self.missing),
                limit=0,
                note=", ".join(self.missing[:3]),
            ),
        ]

    def row(self) -> dict[str, Any]:
        return {
            "model": self.model,
            **accuracy_row(self.accuracy),
            "forward_steps": self.programs.forward,
            "backward_steps": self.programs.backward,
            "onnxruntime_nodes": self.onnxruntime_nodes,
            "missing_gradients": list(self.missing),
            "outside_of_eager_reordered": self.reordered,
        }

    def line(self) -> str:
        accuracy, ran = self.accuracy, self.programs
        worst = max(accuracy.tensors, key=lambda t: math.inf if t.reason else t.error / (t.limit or 1e-300))
        outside = f", {len(accuracy.failures)} outside the limit, worst {worst.name}"
        outside += "".join(f", eager {order}: {count} outside" for order, count in self.reordered.items())
        return (
            f"{accuracy_line(accuracy)}, n={len(accuracy.tensors)}{outside if accuracy.failures else ''}, "
            f"{sum(ran.forward.values())}+{sum(ran.backward.values())} steps, "
            f"{self.onnxruntime_nodes} onnxruntime nodes"
        )


@dataclass(frozen=True, kw_only=True)
class Step:
    """Named tensors of one training step.

    Attributes:
        values: what forward returned, and buffers after the step.
        gradients: of inputs and parameters that got one.
    """

    values: dict[str, torch.Tensor]
    gradients: dict[str, torch.Tensor]


def training(
    spec: ModelSpec, compile_module: CompileFunction, programs_of: ProgramsFunction, *, seeds: Sequence[int]
) -> TrainingParity:
    """Compare a step of a compiled network with eager in float32 and float64, for each seed.

    All three start from the same weights and buffers and draw the same masks: float32 from the same seed of
    torch's generator, float64 what eager drew in float32.
    """
    parts: list[Accuracy] = []
    missing: list[str] = []
    reordered: dict[str, int] = {}
    nodes, programs = 0, Programs(forward={}, backward={})
    for seed in seeds:
        module, inputs = spec.module(seed).train(), spec.example(seed)
        buffers = {name: buffer.clone() for name, buffer in module.named_buffers()}
        compiled = compile_module(module)
        # first of all: what cannot be compiled should not cost a reference
        with spec.casting():
            ours = training_step(module, compiled, inputs, spec, seed)
            programs = programs_of(compiled, requiring(inputs))
            nodes = max(nodes, programs.onnxruntime)
            restore(module, buffers)
            recorded = RecordedDraws()
            eager = training_step(module, module, inputs, spec, seed, drawing=recorded)
        restore(module, buffers)
        precise = in_float64(module)
        replayed = ReplayedDraws(recorded.draws)
        reference = training_step(precise, precise, as_float64(inputs), spec, seed, drawing=replayed)
        missing += sorted(ours.gradients.keys() ^ eager.gradients.keys())
        found = _compared(ours, eager, reference, spec)
        parts.append(found)
        if found.failures:
            restore(module, buffers)
            for order, step in eager_in_other_orders(module, inputs, spec, seed, buffers).items():
                outside = len(_compared(step, eager, reference, spec).failures)
                reordered[order] = reordered.get(order, 0) + outside
    return TrainingParity(
        model=spec.name,
        accuracy=Accuracy.joined(parts),
        programs=programs,
        onnxruntime_nodes=nodes,
        missing=tuple(missing),
        reordered=reordered,
    )


def _compared(step: Step, eager: Step, reference: Step, spec: ModelSpec) -> Accuracy:
    return Accuracy.joined(
        [
            compare(step.values, eager.values, reference.values, depth=spec.depth),
            # a gradient's path goes through the network and back
            compare(*_shared(step, eager, reference), depth=2 * spec.depth),
        ]
    )


def eager_in_other_orders(
    module: nn.Module,
    inputs: tuple[Any, ...],
    spec: ModelSpec,
    seed: int,
    buffers: Mapping[str, torch.Tensor],
) -> dict[str, Step]:
    """Steps of eager PyTorch that add up the same numbers in another order. Leaves the buffers as given."""
    steps: dict[str, Step] = {}
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        steps["on one thread"] = training_step(module, module, inputs, spec, seed)
    finally:
        torch.set_num_threads(threads)
    restore(module, buffers)
    set_flags = torch.backends.mkldnn.set_flags  # not flags(): it warns of a type that it sets without need
    enabled, *_, precision = set_flags(_enabled=False)
    try:
        steps["without oneDNN"] = training_step(module, module, inputs, spec, seed)
    finally:
        set_flags(_enabled=enabled, _fp32_precision=precision)
    restore(module, buffers)
    return steps


def training_step(
    module: nn.Module,
    call: Callable[..., Any],
    inputs: tuple[Any, ...],
    spec: ModelSpec,
    seed: int,
    *,
    drawing: AbstractContextManager[Any] | None = None,
) -> Step:
    """Forward and backward from cotangents that the seed fixes; takes the gradients off the parameters.

    Args:
        module: whose parameters and buffers are looked at.
        call: it, or what it was compiled to.
        drawing: around the forward pass, which draws from a generator with this seed.
    """
    inputs = requiring(inputs)
    with torch.random.fork_rng(devices=[]), drawing or nullcontext():
        torch.manual_seed(seed)
        outputs = named_outputs(call(*inputs), f"seed{seed}")
    moving = [y for y in outputs.values() if y.requires_grad]
    with torch.autocast("cpu", enabled=False):
        torch.autograd.backward(moving, cotangents(moving, spec, seed))
    given = [x for x in pytree.tree_leaves(inputs) if isinstance(x, torch.Tensor) and x.requires_grad]
    leaves = {f"input{i}": x for i, x in enumerate(given)} | dict(module.named_parameters())
    gradients = {f"seed{seed}.{name}.grad": x.grad for name, x in leaves.items() if x.grad is not None}
    for leaf in leaves.values():
        leaf.grad = None
    buffers = {f"seed{seed}.{name}": buffer.clone() for name, buffer in module.named_buffers()}
    return Step(
        values={name: y.detach() for name, y in outputs.items()} | buffers,
        gradients=gradients,
    )


def cotangents(outputs: Sequence[torch.Tensor], spec: ModelSpec, seed: int) -> list[torch.Tensor]:
    """One normal tensor for each output; its numbers are in the network's lowest precision, hence in all."""
    device = outputs[0].device if outputs else "cpu"
    generator = torch.Generator(device).manual_seed(seed + 104729)  # other numbers than inputs and weights
    drawn = [torch.randn(y.shape, generator=generator, device=device, dtype=torch.float32) for y in outputs]
    return [x.to(spec.autocast or x.dtype).to(y) for x, y in zip(drawn, outputs, strict=True)]


def restore(module: nn.Module, buffers: Mapping[str, torch.Tensor]) -> None:
    """Give a module the buffers that it had, in place."""
    with torch.no_grad():
        for name, buffer in module.named_buffers():
            buffer.copy_(buffers[name])


def requiring(inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """The same numbers as leaves of autograd, where they are floating-point."""
    return pytree.tree_map_only(
        torch.Tensor,
        lambda x: x.detach().clone().requires_grad_() if x.is_floating_point() else x,
        inputs,
    )


def _shared(*steps: Step) -> tuple[dict[str, torch.Tensor], ...]:
    names = [name for name in steps[0].gradients if all(name in step.gradients for step in steps)]
    return tuple({name: step.gradients[name] for name in names} for step in steps)
