"""Guided optimisation: one compilation for each step, and what it is worth in bytes, kernels and time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

import daceml
from daceml.runtime.records.manifest import Manifest
from daceml.text_tables import in_millions, render, table
from daceml.transformations import Recipe
from examples.demo import interleaved_ms


@dataclass(frozen=True, kw_only=True)
class GuidedStep:
    """One step of an optimisation.

    Attributes:
        name: as the paper calls it, where it has it.
        note: what is done here, and whether the automatic recipe does it already.
        recipe: everything up to this step; None where the step before has it already: nothing is measured.
        options: further options of `daceml.compile`.
    """

    name: str
    note: str
    recipe: Recipe | None
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, kw_only=True)
class Row:
    """One step, measured.

    Attributes:
        bytes, kernels, steps: of forward and backward pass; kernels are generated, steps have the calls, too.
        inference_ms, training_ms: medians of a call, and of a call with its backward pass.
        error: largest difference of a gradient from eager's, relative to its largest element.
    """

    step: GuidedStep
    bytes: tuple[int, int]
    kernels: tuple[int, int]
    steps: tuple[int, int]
    inference_ms: float
    training_ms: float
    error: float

    def cells(self) -> tuple[str, ...]:
        """The row of the printed table."""
        moved, (ahead, behind) = "  ".join(map(in_millions, self.bytes)), self.kernels
        calls = [count - kernels for count, kernels in zip(self.steps, self.kernels, strict=True)]
        return (
            self.step.name,
            moved,
            f"{ahead}+{calls[0]}  {behind}+{calls[1]}",
            f"{self.inference_ms:.2f}",
            f"{self.training_ms:.2f}",
            f"{self.error:.0e}",
        )


def measure(module: nn.Module, x: torch.Tensor, steps: Sequence[GuidedStep]) -> list[Row]:
    """Compile a module for each step with a recipe, compare gradients with eager's, and time all in turns.

    Args:
        x: the module's only argument, which gets a gradient.
    """
    x = x.detach().requires_grad_()
    seed = torch.randn_like(module(x))
    steps = [step for step in steps if step.recipe is not None]
    compiled = [daceml.compile(module, recipe=step.recipe, **step.options) for step in steps]
    expected = _gradients(module, x, seed)
    errors = [_largest_error(_gradients(one, x, seed), expected) for one in compiled]

    def inference(one: nn.Module) -> None:
        with torch.no_grad():
            one(x)

    forward_ms = interleaved_ms(*(lambda one=one: inference(one) for one in compiled))
    both_ms = interleaved_ms(*(lambda one=one: _gradients(one, x, seed) for one in compiled))
    return [
        _row(step, one, x, forward_ms[i], both_ms[i], errors[i])
        for i, (step, one) in enumerate(zip(steps, compiled, strict=True))
    ]


def _gradients(module: nn.Module, x: torch.Tensor, seed: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return torch.autograd.grad(module(x), [x, *module.parameters()], seed)


def _largest_error(ours: Sequence[torch.Tensor], theirs: Sequence[torch.Tensor]) -> float:
    largest = max(float(b.abs().max()) for b in theirs)
    return max(float((a - b).abs().max()) for a, b in zip(ours, theirs, strict=True)) / largest


def _row(
    step: GuidedStep, compiled: nn.Module, x: torch.Tensor, forward_ms: float, both_ms: float, error: float
) -> Row:
    assert isinstance(compiled, daceml.DaceModule)
    variant, _ = compiled.session.variant((x,), {})
    assert variant.backward is not None
    ahead, behind = variant.program.manifest, variant.backward.program.manifest
    return Row(
        step=step,
        bytes=(_bytes(ahead), _bytes(behind)),
        kernels=(_kernels(ahead), _kernels(behind)),
        steps=(len(ahead.steps), len(behind.steps)),
        inference_ms=forward_ms,
        training_ms=both_ms,
        error=error,
    )


def _bytes(manifest: Manifest) -> int:
    return sum(step.unique_bytes for step in manifest.steps)


def _kernels(manifest: Manifest) -> int:
    return sum(step.kind == "kernel" for step in manifest.steps)


def print_rows(title: str, rows: Sequence[Row], steps: Sequence[GuidedStep]) -> None:
    """The table, and a line for each step."""
    print(f"{title}, {torch.get_num_threads()} threads; two figures: forward, backward\n")
    shown = table("step", "MB moved", "kernels+calls", "ms", "training ms", "error")
    for row in rows:
        shown.add_row(*row.cells())
    print(f"{render(shown)}\n")
    for step in steps:
        print(render(f"{step.name}: {step.note}"))
    fastest = min(rows, key=lambda row: row.training_ms)
    print(f"\nfastest with its backward pass on this machine: {fastest.step.name}")
