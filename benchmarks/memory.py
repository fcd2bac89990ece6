"""How much memory a training step takes: python -m benchmarks.memory --check.

The peak is the high-water mark of live bytes in torch's CPU allocator from the forward pass to the end of the
backward pass, parameters and gradients included; torch's profiler sees every allocation. Both take their
first step unseen; what a program keeps from call to call is measured in a fresh one.
"""

from __future__ import annotations

import copy
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch
from torch import nn

from benchmarks import command
from benchmarks.bars import Bar
from benchmarks.live_bytes import high_water_bytes
from benchmarks.metric import MEDIAN_OVER_EAGER, compare
from benchmarks.models import MODELS
from benchmarks.models.spec import in_float64
from daceml.report.explanation.explanation import explain_program

BUDGET = 0.6


@dataclass(frozen=True, kw_only=True)
class Case:
    """A network, its batch, and the one for a budget: at a small one, parameters alone exceed it."""

    model: str
    batch: int
    budget_batch: int | None = None


CASES = (
    Case(model="resnet50", batch=2, budget_batch=8),
    # a single layer: parameters, gradients and one multilayer perceptron are more than 60 % of eager's peak
    Case(model="bert", batch=2),
)
QUICK = (Case(model="bert", batch=2),)

Step = Callable[[], list[torch.Tensor]]


def training_step(module: nn.Module, call: Callable[..., Any], x: torch.Tensor) -> list[torch.Tensor]:
    """Forward, and backward from ones; the results, which the caller holds."""
    y = call(x)
    y.backward(torch.ones_like(y))
    return [y.detach(), *(p.grad for p in module.parameters() if p.grad is not None)]


def forget(module: nn.Module) -> None:
    """Take the gradients off."""
    for parameter in module.parameters():
        parameter.grad = None


def peak_of(module: nn.Module, call: Callable[..., Any], x: torch.Tensor) -> int:
    """Peak of one step that starts without gradients."""
    forget(module)
    return high_water_bytes(
        lambda: training_step(module, call, x), [*module.parameters(), *module.buffers(), x]
    )


def seconds_of(module: nn.Module, call: Callable[..., Any], x: torch.Tensor, rounds: int) -> float:
    """Median seconds of a step."""
    durations: list[float] = []
    for _ in range(rounds):
        forget(module)
        start = time.perf_counter()
        training_step(module, call, x)
        durations.append(time.perf_counter() - start)
    return median(durations)


def measure(case: Case, batch: int, rounds: int, *, budget: float | None = None) -> dict[str, Any]:
    """Eager and compiled, with a share of eager's peak as budget or none."""
    import daceml

    spec = MODELS[case.model]
    module = spec.module().train()
    state = copy.deepcopy(module.state_dict())
    (x,) = spec.inputs(torch.Generator().manual_seed(0), torch.float32, batch)
    _without_dropout(module)
    names = ["output", *(f"{name}.grad" for name, _ in module.named_parameters())]
    eager_results = training_step(module, module, x)
    module.load_state_dict(state)
    precise = in_float64(module)
    reference = training_step(precise, precise, x.double())
    del precise
    eager_bytes = peak_of(module, module, x)
    module.load_state_dict(state)
    limit = None if budget is None else int(budget * eager_bytes)
    how = {} if limit is None else {"recompute": "budget", "memory_budget_bytes": limit}
    start = time.perf_counter()
    forget(module)
    ours_results = training_step(module, daceml.compile(module, **how), x)
    compile_s = time.perf_counter() - start
    accuracy = compare(
        *(dict(zip(names, results, strict=True)) for results in (ours_results, eager_results, reference)),
        depth=2 * spec.depth,
    )
    del ours_results, eager_results, reference
    module.load_state_dict(state)
    # bound anew from the cache: no workspace is held yet, so that the first step shows all of it
    compiled = daceml.compile(module, **how)
    explained = explain_program(compiled, x)  # binds it, and does not run it
    peak = peak_of(module, compiled, x)
    row: dict[str, Any] = {
        "model": case.model,
        "batch": batch,
        "budget_bytes": limit,
        "eager_bytes": eager_bytes,
        "daceml_bytes": peak,
        "stored_bytes": sum(record.bytes for record in explained.storage if record.stored),
        "recomputed_bytes": sum(record.bytes for record in explained.storage if not record.stored),
        "median_over_eager": accuracy.median_over_eager,
        "outside": [failure.name for failure in accuracy.failures],
        "compile_s": compile_s,
        "eager_s": seconds_of(module, module, x, rounds),
        "daceml_s": seconds_of(module, compiled, x, rounds),
    }
    if limit is not None:
        row["stored_everything_s"] = seconds_of(module, _compiled(module, x), x, rounds)
    return row


def _compiled(module: nn.Module, x: torch.Tensor) -> nn.Module:
    import daceml

    compiled = daceml.compile(module, recompute="none")
    training_step(module, compiled, x)
    return compiled


def _without_dropout(module: nn.Module) -> None:
    """Two runs that draw other masks cannot be compared."""
    for child in module.modules():
        if isinstance(child, nn.Dropout):
            child.p = 0.0
        if hasattr(child, "dropout_prob"):
            setattr(child, "dropout_prob", 0.0)  # noqa: B010  (a number, which Module does not declare)


def bars_of(row: dict[str, Any]) -> list[Bar]:
    """Peak, and with a budget that results are as near to float64 as eager's."""
    what = f"{row['model']} batch {row['batch']}"
    limit, unit = row["budget_bytes"], "MB"
    if limit is None:
        return [
            Bar(
                name=f"{what}, peak, eager's is the limit",
                figure=row["daceml_bytes"] / 1e6,
                limit=row["eager_bytes"] / 1e6,
                unit=unit,
            )
        ]
    slower = row["daceml_s"] / row["stored_everything_s"]
    return [
        Bar(
            name=f"{what}, peak with a budget of {BUDGET:.0%} of eager's",
            figure=row["daceml_bytes"] / 1e6,
            limit=limit / 1e6,
            unit=unit,
            note=f"{slower:.2f} times the step that stores everything",
        ),
        Bar(
            name=f"{what}, with the budget, distance from float64 over eager's",
            figure=row["median_over_eager"],
            limit=MEDIAN_OVER_EAGER,
        ),
        Bar(name=f"{what}, with the budget, tensors outside", figure=len(row["outside"]), limit=0),
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    options = command.parser("Measure the memory of a training step.").parse_args(arguments)
    rounds = 3 if options.quick else 7
    rows: list[dict[str, Any]] = []
    for case in QUICK if options.quick else CASES:
        wanted = [(case.batch, None)]
        wanted += [(case.budget_batch, BUDGET)] if case.budget_batch else []
        for batch, budget in wanted:
            row = measure(case, batch, rounds, budget=budget)
            rows.append(row)
            print(
                f"{case.model} batch {batch}: "
                f"eager {row['eager_bytes'] / 1e6:.1f} MB {row['eager_s']:.3f} s, "
                f"daceml {row['daceml_bytes'] / 1e6:.1f} MB {row['daceml_s']:.3f} s"
                + (f", budget {row['budget_bytes'] / 1e6:.1f} MB" if budget else ""),
                flush=True,
            )
    return command.finish("memory", options, rows, [bar for row in rows for bar in bars_of(row)])


if __name__ == "__main__":
    sys.exit(main())
