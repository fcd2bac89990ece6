"""Compiles two modules, compares them with PyTorch and prints what that changed: python -m examples.demo.

Exit code 1 if a result is too far from float64.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

import torch
from torch import nn

import daceml
from daceml.report.explanation.explanation import Explanation
from daceml.text_tables import in_millions, render, table
from daceml.verification.verification import Verification
from examples.mbconv import MBConv

CALLS = 15
WARM_UP = 3


@daceml.dace_module(backward=False)
class Mish(nn.Module):
    """x * tanh(softplus(x)), as a user writes an activation that no library has."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * torch.tanh(nn.functional.softplus(x))


@dataclass(frozen=True, kw_only=True)
class Row:
    """One module, before and after."""

    name: str
    eager_ms: float
    compiled_ms: float
    explanation: Explanation
    verification: Verification

    def cells(self) -> tuple[str, ...]:
        """The row of the printed table."""
        eager, bytes_moved = self.explanation.eager, self.explanation.bytes["unique"]
        worst = max(self.verification.tensors, key=lambda tensor: tensor.error)
        return (
            self.name,
            f"{eager['kernels']} -> {len(self.explanation.steps)}",
            f"{in_millions(eager['unique'])} -> {in_millions(bytes_moved)}",
            f"{self.eager_ms:.2f} -> {self.compiled_ms:.2f}",
            f"{self.eager_ms / self.compiled_ms:.2f}x",
            f"{worst.eager_error:.1e} -> {worst.error:.1e}",
            "ok" if self.verification.passed else "FAILED",
        )


def main() -> int:
    torch.manual_seed(0)
    block, x = MBConv(), torch.randn(8, 24, 56, 56)
    with torch.no_grad():
        block(x)  # in training mode: gives the batch norms statistics
    cases: list[tuple[str, nn.Module, torch.Tensor]] = [
        ("Mish", Mish(), torch.randn(8, 32, 112, 112)),
        ("MBConv", daceml.compile(block.eval(), backward=False), x),
    ]
    print(f"PyTorch -> daceml, {torch.get_num_threads()} threads, medians of {CALLS} calls\n")
    rows = [measure(name, module, example) for name, module, example in cases]
    summary = table("module", "steps", "MB moved", "ms", "speed", "distance from float64", "check")
    for row in rows:
        summary.add_row(*row.cells())
    print(render(summary))
    print("\nprint(daceml.explain(module, x)) says it step by step; for Mish:\n")
    print(rows[0].explanation)
    return 0 if all(row.verification.passed for row in rows) else 1


def measure(name: str, compiled: nn.Module, x: torch.Tensor) -> Row:
    """Compile, check and time a module beside the eager module it was made from."""
    assert isinstance(compiled, daceml.DaceModule)
    eager = compiled.session.eager
    with torch.no_grad():
        eager_ms, compiled_ms = interleaved_ms(lambda: eager(x), lambda: compiled(x))
    return Row(
        name=name,
        eager_ms=eager_ms,
        compiled_ms=compiled_ms,
        explanation=daceml.explain(compiled, x),
        verification=daceml.verify(compiled, x),
    )


def interleaved_ms(*actions: Callable[[], object]) -> tuple[float, ...]:
    """Median duration of each action; they take turns, so that a busy moment of the machine meets all."""
    seen: list[list[float]] = [[] for _ in actions]
    for number in range(WARM_UP + CALLS):
        for action, durations in zip(actions, seen, strict=True):
            start = time.perf_counter()
            action()
            if number >= WARM_UP:
                durations.append((time.perf_counter() - start) * 1e3)
    return tuple(median(durations) for durations in seen)


if __name__ == "__main__":
    sys.exit(main())
