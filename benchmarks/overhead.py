"""What a call of a compiled module costs beside its kernels: python -m benchmarks.overhead --check."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from statistics import median
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from benchmarks import command, interleave
from benchmarks.bars import Bar
from benchmarks.interleave import Step, Variant
from benchmarks.models import MODELS
from benchmarks.models.shapes import RESNET50_SINGLE
from benchmarks.rounds import Measurement
from daceml.interval import median_interval

ONE_OPERATOR_LIMIT_US = 15.0
HOST_LIMIT_US = 100.0
FALLBACK_LIMIT_US = 10.0
CUT_LIMIT_US = 30.0
FEW, MANY = 1, 9
OPERATORS = ("relu", "linear")


class Relu(nn.Module):
    """relu on 16 floats: 50 ns of work."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x)


class Fallbacks(nn.Module):
    """Operators that ONNX does not have, one after another, on 16 floats."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.count = count

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(self.count):
            x = torch.special.bessel_j0(x)
        return x


class Branch(nn.Module):
    """A small layer, and a branch that data decides: there is a cut behind the layer."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(16, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.linear(x))
        if x.sum() < 0:
            x = -x
        return x


def chain(kind: str, count: int) -> nn.Module:
    """So many fallback nodes, or layers with a cut behind each; the same in every process."""
    torch.manual_seed(0)
    module = Fallbacks(count) if kind == "fallback" else nn.Sequential(*(Branch() for _ in range(count)))
    return module.eval()


def build_chain(kind: str, count: int, how: str) -> Step:
    """One call of a chain without gradients."""
    torch.set_grad_enabled(False)
    return partial(_callable(chain(kind, count), how, fullgraph=kind != "cut"), torch.rand(1, 16))


def chain_bar(kind: str, limit: float, measurement: Measurement) -> Bar:
    """What one more link of a chain costs, beside what it costs in eager PyTorch."""
    few, many = (measurement.difference_us(f"daceml {n}", f"eager {n}") for n in (FEW, MANY))
    return Bar(
        name=f"one more {kind}, above the eager calls",
        figure=(many.value - few.value) / (MANY - FEW) if measurement.measured else None,
        limit=limit,
        unit="us",
        note=f"{FEW}: {few}, {MANY}: {many}{'' if measurement.measured else ', too few quiet rounds'}",
    )


def module_and_input(operator: str) -> tuple[nn.Module, torch.Tensor]:
    """The one-operator module and its input, the same in every process."""
    torch.manual_seed(0)
    if operator == "relu":
        return Relu().eval(), torch.randn(16)
    return nn.Linear(16, 16).eval(), torch.randn(1, 16)


def build_step(operator: str, how: str) -> Step:
    """One call without gradients: the torch function, the module, or one of its compiled forms."""
    torch.set_grad_enabled(False)
    module, x = module_and_input(operator)
    if how == "torch":
        if isinstance(module, nn.Linear):
            return partial(functional.linear, x, module.weight, module.bias)
        return partial(torch.relu, x)
    return partial(_callable(module, how), x)


def _callable(module: nn.Module, how: str, *, fullgraph: bool = True) -> Callable[..., Any]:
    if how == "eager":
        return module
    if how == "inductor":
        return torch.compile(module)
    import daceml

    return daceml.compile(module, backward=False, fullgraph=fullgraph)


def one_operator_bar(operator: str, measurement: Measurement) -> Bar:
    """How much longer the compiled module takes than the same torch call."""
    above = measurement.difference_us("daceml", "torch")
    return Bar(
        name=f"one {operator}, compiled, above the torch call",
        figure=above.value if measurement.measured else None,
        limit=ONE_OPERATOR_LIMIT_US,
        unit="us",
        note=f"{above}{'' if measurement.measured else ', too few quiet rounds'}",
    )


def host_time_row(total_us: Sequence[float], kernels_us: Sequence[float]) -> dict[str, Any]:
    """Time per call outside kernels, call by call."""
    host = median_interval([total - kernels for total, kernels in zip(total_us, kernels_us, strict=True)])
    return {
        "case": "resnet50 batch 1",
        "total_us": median(total_us),
        "kernels_us": median(kernels_us),
        "host_us": {"median": host.value, "low": host.low, "high": host.high, "n": host.n},
    }


def host_time_bar(row: dict[str, Any]) -> Bar:
    host = row["host_us"]
    return Bar(
        name="resnet50 batch 1, host time outside kernels",
        figure=host["median"],
        limit=HOST_LIMIT_US,
        unit="us",
        note=f"[{host['low']:.1f}, {host['high']:.1f}] n={host['n']}",
    )


def measure_host_time(calls: int) -> dict[str, Any]:
    """Ask daceml's own clocks: a driver's overhead is smaller than what two timings of 100 ms differ by."""
    import daceml

    module = daceml.compile(MODELS["resnet50"].module(), backward=False)
    x = torch.randn(RESNET50_SINGLE, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        for _ in range(3):
            module(x)
        profiles = [daceml.profile_call(module, x) for _ in range(calls)]
        yardstick = cold_eager_us(lambda: module(x), calls)
    row = host_time_row([entry.total_us for entry in profiles], [entry.kernels_us for entry in profiles])
    return {**row, "cold_eager_relu_us": yardstick}


def cold_eager_us(before: Callable[[], object], calls: int) -> float:
    """One eager torch.relu of 16 floats right after `before`, which leaves nothing of it in the caches.

    What the host does after a large network costs many times what it costs in a loop; this says how many.
    """
    x = torch.randn(16)
    durations: list[float] = []
    for _ in range(calls):
        before()
        start = time.perf_counter()
        torch.relu(x)
        durations.append((time.perf_counter() - start) * 1e6)
    return median(durations)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = command.parser("Measure what a call of a compiled module costs beside its kernels.")
    options = parser.parse_args(arguments)
    ways = ("torch", "eager", "daceml") if options.quick else ("torch", "eager", "inductor", "daceml")
    rows: list[dict[str, Any]] = []
    bars: list[Bar] = []
    for operator in OPERATORS:
        variants = [Variant(name=how, build=partial(build_step, operator, how)) for how in ways]
        # A foreign process does less harm to microseconds than to long steps, but a round with one still
        # counts less.
        seen = interleave.measure(variants, rounds=6 if options.quick else 12, slice_s=0.1)
        rows.append({"case": f"one {operator}", **seen.row("torch")})
        bars.append(one_operator_bar(operator, seen))
        print(
            f"one {operator:<7}",
            ", ".join(f"{name} {seen.duration_us(name).value:.1f} us" for name in ways),
            flush=True,
        )
    for kind, limit in (("fallback", FALLBACK_LIMIT_US), ("cut", CUT_LIMIT_US)):
        variants = [
            Variant(name=f"{how} {count}", build=partial(build_chain, kind, count, how))
            for count in (FEW, MANY)
            for how in ("eager", "daceml")
        ]
        seen = interleave.measure(variants, rounds=6 if options.quick else 12, slice_s=0.1)
        rows.append({"case": f"one more {kind}", **seen.row(f"eager {FEW}")})
        bars.append(chain_bar(kind, limit, seen))
        print(f"one more {kind:<9} {bars[-1].figure} us; {bars[-1].note}", flush=True)
    rows.append(measure_host_time(10 if options.quick else 30))
    bars.append(host_time_bar(rows[-1]))
    print(
        f"resnet50 b1 {rows[-1]['total_us']:.0f} us, of which host {rows[-1]['host_us']['median']:.1f} us;"
        f" one eager relu in the same place {rows[-1]['cold_eager_relu_us']:.1f} us"
    )
    return command.finish("overhead", options, rows, bars)


if __name__ == "__main__":
    sys.exit(main())
