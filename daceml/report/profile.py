"""`profile_call`: where one call of a compiled module spends its time."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from statistics import median
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from daceml.errors import ConfigurationError
from daceml.module.module import DaceModule
from daceml.module.onnx_model import ONNXModel
from daceml.runtime import launcher
from daceml.text_tables import render, table

if TYPE_CHECKING:
    from daceml.runtime.program import Program


@dataclass(frozen=True, kw_only=True)
class CallProfile:
    """Microseconds of one call, medians over some calls.

    Attributes:
        total_us: from the caller's side, `kernels_us + host_us`.
        kernels_us: inside the program's steps.
        host_us: everything else: Python, guards, the launcher, allocating results. The median of what each
            call took outside its own steps, so it is no difference of two long times.
        uninstrumented_us: the same call with the clocks off.
        steps: label and time of each step, in order.
    """

    total_us: float
    kernels_us: float
    host_us: float
    uninstrumented_us: float
    steps: tuple[tuple[str, float], ...]

    def to_json(self) -> dict[str, Any]:
        """Plain values for json.dumps."""
        return asdict(self)

    def __str__(self) -> str:
        rows = table("step", "us", "share")
        for label, duration_us in self.steps:
            share = duration_us / max(self.kernels_us, 1e-9)
            rows.add_row(label, f"{duration_us:.1f}", f"{share:.0%}")
        inside = f"{self.kernels_us:.1f} in steps, {self.host_us:.1f} outside them"
        totals = f"{self.total_us:.1f} us a call: {inside} ({self.uninstrumented_us:.1f} with the clocks off)"
        return f"{render(rows)}\n\n{totals}\n"


def profile_call(compiled: nn.Module | ONNXModel, *inputs: Any, calls: int = 20) -> CallProfile:
    """Measure calls of a compiled module; compiles it first if need be. Gradients are off.

    Args:
        compiled: what daceml.compile or dace_module returned, or an `ONNXModel`.
        inputs: positional arguments of a call.
        calls: how many are measured with, and again without, the clocks inside.
    Raises:
        ConfigurationError: a module that is not compiled, or no calls.
    """
    if calls < 1:
        raise ConfigurationError(f"profile_call cannot measure {calls} calls", fix="pass calls=1 or more")
    with torch.no_grad():
        program = _program(compiled, inputs)
        compiled(*inputs)  # warms caches and allocators
        plain = [_duration_us(lambda: compiled(*inputs)) for _ in range(calls)]
        totals, steps = _instrumented(program, lambda: compiled(*inputs), calls)
    kernels = [sum(row) for row in steps]
    kernels_us = median(kernels)
    host_us = median(total - inside for total, inside in zip(totals, kernels, strict=True))
    labels = [step.label for step in program.manifest.steps]
    return CallProfile(
        total_us=kernels_us + host_us,
        kernels_us=kernels_us,
        host_us=host_us,
        uninstrumented_us=median(plain),
        steps=tuple(
            (label, median(column)) for label, column in zip(labels, zip(*steps, strict=True), strict=True)
        ),
    )


def _program(compiled: nn.Module | ONNXModel, inputs: tuple[Any, ...]) -> Program:
    if isinstance(compiled, ONNXModel):
        return compiled.program
    if isinstance(compiled, DaceModule):
        return compiled.session.variant(inputs, {})[0].program
    raise ConfigurationError(
        f"profile_call takes a compiled module, not a plain {type(compiled).__name__}",
        fix="pass daceml.compile(module, backward=False)",
    )


def _instrumented(
    program: Program, call: Callable[[], Any], calls: int
) -> tuple[list[float], list[tuple[float, ...]]]:
    """Microseconds of each whole call, and of each of its steps."""
    totals: list[float] = []
    steps: list[tuple[float, ...]] = []
    with _clocks(program) as step_us:
        for _ in range(calls):
            for index in range(len(step_us)):
                step_us[index] = 0.0
            totals.append(_duration_us(call))
            steps.append(tuple(step_us)[: len(program.manifest.steps)])
    return totals, steps


@contextmanager
def _clocks(program: Program) -> Generator[ctypes.Array[ctypes.c_double]]:
    """Let the program add the time of every step to an array."""
    step_us = (ctypes.c_double * max(len(program.manifest.steps), 1))()
    launcher.set_profile(program.number, step_us)
    try:
        yield step_us
    finally:
        launcher.set_profile(program.number, None)


def _duration_us(action: Callable[[], Any]) -> float:
    start = time.perf_counter()
    action()
    return (time.perf_counter() - start) * 1e6
