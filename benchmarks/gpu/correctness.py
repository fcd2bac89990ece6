"""One network in one mode and precision on the device, beside eager there, both against eager in float64."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import nn

from benchmarks.gpu.case import Case
from benchmarks.gpu.precisions import PRECISIONS, Precision, compare, computing_in
from benchmarks.gpu.subject import subject_of
from benchmarks.gpu.target import Target, in_precision, steps_of, target_of
from benchmarks.gpu.without_draws import without_draws
from benchmarks.metric import MEDIAN_OVER_EAGER, Accuracy, TensorError
from benchmarks.models.spec import ModelSpec, as_float64, in_float64
from benchmarks.outputs import named_outputs
from benchmarks.parity_training import requiring, restore, training_step

Steps = dict[str, Mapping[str, int]]

# Networks with a single result: the error of one draw is that many roundings, and no median
_DRAWS = 5


def correctness(case: Case) -> dict[str, Any]:
    """Errors of a network, a small replica of it in emulation.

    Raises:
        CallError: the network is left to eager PyTorch.
    """
    subject = subject_of(case)
    target, precision = target_of(emulated=case.emulated), PRECISIONS[case.precision]
    return compared(subject.spec, target, precision, training=subject.training)


def compared(
    spec: ModelSpec, target: Target, precision: Precision, *, training: bool, train_mode: bool = False
) -> dict[str, Any]:
    """A call without gradients, or a training step, as a row; `train_mode` concerns the former."""
    with computing_in(precision):
        accuracy, steps = (
            trained(spec, target, precision)
            if training
            else inferred(spec, target, precision, train_mode=train_mode)
        )
    return row_of(accuracy, steps)


def inferred(
    spec: ModelSpec, target: Target, precision: Precision, *, train_mode: bool = False
) -> tuple[Accuracy, Steps]:
    """The results of calls without gradients, in eval mode unless train mode is asked for."""
    module = without_draws(in_precision(spec, precision, target).train(train_mode))
    draws = [target.example(spec, precision, seed) for seed in range(_DRAWS)]
    compiled = target.compile(module, training=False)

    def results(run: nn.Module, places: Sequence[tuple[Any, ...]]) -> dict[str, torch.Tensor]:
        named = [named_outputs(run(*inputs), f"call{seed}") for seed, inputs in enumerate(places)]
        return {name: value for outputs in named for name, value in outputs.items()}

    with torch.no_grad():
        # first of all: what cannot be compiled should not cost a reference
        with target.casting(spec):
            ours, steps = results(compiled, draws), steps_of(compiled, draws[0])
            eager = results(module, draws)
        reference = results(in_float64(module), [as_float64(inputs) for inputs in draws])
    return compare(ours, eager, reference, precision=precision, depth=spec.depth), steps


def trained(spec: ModelSpec, target: Target, precision: Precision) -> tuple[Accuracy, Steps]:
    """Results, buffers and gradients of a step in train mode, from one cotangent for all three."""
    module = without_draws(in_precision(spec, precision, target).train())
    inputs = target.example(spec, precision)
    buffers = {name: buffer.clone() for name, buffer in module.named_buffers()}
    compiled = target.compile(module, training=True)
    # cotangents are numbers of the lowest precision, so that float64 gets the same ones
    lowest = replace(spec, autocast=spec.autocast or precision.dtype)
    step = partial(training_step, inputs=inputs, spec=lowest, seed=0)

    def cast(run: nn.Module, *arguments: Any) -> Any:
        with target.casting(spec):
            return run(*arguments)

    ours = step(module, partial(cast, compiled))
    with target.casting(spec):
        steps = steps_of(compiled, requiring(inputs))
    restore(module, buffers)
    eager = step(module, partial(cast, module))
    restore(module, buffers)
    precise = in_float64(module)
    reference = training_step(precise, precise, as_float64(inputs), lowest, 0)
    parts = [
        compare(ours.values, eager.values, reference.values, precision=precision, depth=spec.depth),
        # a gradient's path goes through the network and back
        compare(
            ours.gradients, eager.gradients, reference.gradients, precision=precision, depth=2 * spec.depth
        ),
    ]
    return Accuracy.joined(parts), steps


def row_of(accuracy: Accuracy, steps: Steps) -> dict[str, Any]:
    """Plain values for json.dumps; `outside` names every tensor that did not pass."""
    worst = max(accuracy.tensors, key=_share_of_limit)
    return {
        "tensors": len(accuracy.tensors),
        "unmeasured": sum(tensor.unmeasured for tensor in accuracy.tensors),
        "median_over_eager": _number(accuracy.median_over_eager),
        "worst": {
            "name": worst.name,
            "error": _number(worst.error),
            "eager_error": worst.eager_error,
            "limit": worst.limit,
        },
        "outside": outside(accuracy, steps),
        "steps": steps,
    }


def outside(accuracy: Accuracy, steps: Steps) -> list[str]:
    """What is not as it has to be, as sentences."""
    found = [
        f"{tensor.name}: {tensor.reason or f'error {tensor.error:.2e}, at most {tensor.limit:.2e}'}"
        for tensor in accuracy.failures
    ]
    if accuracy.median_over_eager > MEDIAN_OVER_EAGER:
        found.append(f"median error {accuracy.median_over_eager:.2f} times eager's")
    if left := sum(kinds.get("onnxruntime", 0) for kinds in steps.values()):
        found.append(f"{left} nodes left to onnxruntime")
    if not sum(kinds.get("kernel", 0) for kinds in steps.values()):
        found.append("no kernel was generated")
    return found


def _share_of_limit(tensor: TensorError) -> float:
    return math.inf if tensor.reason else tensor.error / (tensor.limit or 1e-300)


def _number(value: float) -> float | None:
    """JSON has no infinity."""
    return value if math.isfinite(value) else None
