"""Optimisations of training on a GPU: predicted from one recording, then run, and recorded as well.

    python -m benchmarks.whatif.on_gpu --traces FOLDER --json FILE --check

The recordings before and after become a pair: what an optimisation did to a real run. `--device cpu` runs the
same program without a GPU, small, to see that it works; its figures mean nothing.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import nn
from torch.nn import functional

import daceml
from benchmarks import command
from benchmarks.bars import Bar
from benchmarks.whatif.networks import NETWORKS, SMALL, Network
from daceml.profiling.kineto import read_trace
from daceml.simulation import build, predict
from daceml.simulation.whatif.amp import AutomaticMixedPrecision
from daceml.simulation.whatif.compiled_region import CompiledRegion
from daceml.simulation.whatif.cuda_graphs import CudaGraphs
from daceml.simulation.whatif.fused_adam import FusedAdam
from daceml.simulation.whatif.optimization import Optimization

LIMIT = 0.10
STEPS, WARMUP = 30, 10

Step = Callable[[], None]


@dataclass(frozen=True, kw_only=True)
class Run:
    """A training run.

    Attributes:
        step: runs one step and waits for nothing.
    """

    model: nn.Module
    optimizer: torch.optim.Optimizer
    step: Step


def plain(network: Network, device: str) -> Run:
    """Eager, float32, one kernel for each operation of the optimizer."""
    return _run(network, device, fused=False)


def with_amp(network: Network, device: str) -> Run:
    """Half precision where autocast allows it."""
    return _run(network, device, amp=True)


def with_fused_adam(network: Network, device: str) -> Run:
    """One kernel for the optimizer."""
    return _run(network, device, fused=True)


def with_cuda_graphs(network: Network, device: str) -> Run:
    """Forward and backward as CUDA graphs."""

    def graphed(model: nn.Module, inputs: torch.Tensor) -> Any:
        return torch.cuda.make_graphed_callables(model, (inputs,))

    return _run(network, device, around=graphed)


def with_compile(network: Network, device: str) -> Run:
    """Inductor's fused kernels."""
    return _run(network, device, around=lambda model, _: torch.compile(model))


def _run(
    network: Network,
    device: str,
    *,
    amp: bool = False,
    fused: bool = False,
    around: Callable[[nn.Module, torch.Tensor], Any] | None = None,
) -> Run:
    torch.manual_seed(0)
    model = network.make().to(device)
    inputs, classes = network.batch(network.samples, device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, fused=fused, foreach=False)
    called = model if around is None else around(model, inputs)
    half = torch.float16 if device == "cuda" else torch.bfloat16
    scaler = torch.amp.GradScaler(device, enabled=amp and device == "cuda")

    def step() -> None:
        optimizer.zero_grad(set_to_none=around is None)
        with torch.autocast(device, dtype=half, enabled=amp):
            scores = called(inputs).flatten(0, -2)
            loss = functional.cross_entropy(scores, classes.flatten())
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()

    return Run(model=model, optimizer=optimizer, step=step)


QUESTIONS: dict[str, tuple[Optimization, Callable[[Network, str], Run]]] = {
    "amp": (AutomaticMixedPrecision(), with_amp),
    "fused-adam": (FusedAdam(), with_fused_adam),
    "cuda-graphs": (CudaGraphs(), with_cuda_graphs),
    "compile": (CompiledRegion(), with_compile),
}


def step_us(run: Run, device: str, steps: int) -> float:
    """What a step takes in the long run: the median of five groups of steps."""
    for _ in range(WARMUP if device == "cuda" else 2):
        run.step()
    groups: list[float] = []
    for _ in range(5):
        _wait(device)
        begun = time.perf_counter()
        for _ in range(max(steps // 5, 1)):
            run.step()
        _wait(device)
        groups.append((time.perf_counter() - begun) * 1e6 / max(steps // 5, 1))
    return median(groups)


def _wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def recorded(run: Run, file: Path) -> None:
    """Steps of a run, as a trace."""
    with daceml.profile(run.model, run.optimizer, steps=5, path=file) as recording:
        while not recording.done:
            run.step()
            recording.step()


def measure(name: str, network: Network, device: str, traces: Path, steps: int) -> list[dict[str, Any]]:
    """All questions about a network; an answer's ratio is applied to the time without a profiler."""
    baseline = plain(network, device)
    measured_us = step_us(baseline, device, steps)
    before = traces / f"{name}-before.json.gz"
    recorded(baseline, before)
    graph = build(read_trace(before))
    rows: list[dict[str, Any]] = []
    for question, (optimization, make) in QUESTIONS.items():
        row: dict[str, Any] = {"case": f"{name}, {question}", "baseline_us": measured_us}
        try:
            answer = predict(graph, [optimization])
            changed = make(network, device)
            after_us = step_us(changed, device, steps)
            recorded(changed, traces / f"{name}-{question}.json.gz")
        except (RuntimeError, AssertionError, daceml.DacemlError) as error:
            rows.append(row | {"failure": str(error).strip().splitlines()[0]})
            continue
        ratio = answer.step_us / answer.baseline_us
        rows.append(
            row
            | {
                "predicted_us": measured_us * ratio,
                "fast_us": measured_us * answer.fast_us / answer.baseline_us,
                "slow_us": measured_us * answer.slow_us / answer.baseline_us,
                "measured_us": after_us,
                "error": measured_us * ratio / after_us - 1,
                "replay_error": answer.replay_error,
            }
        )
    return rows


def bars_of(rows: Sequence[dict[str, Any]]) -> list[Bar]:
    """One for each network and question."""
    return [
        Bar(
            name=f"{row['case']}: predicted step off by",
            figure=abs(row["error"]) if "error" in row else None,
            limit=LIMIT,
            note=row.get("failure", ""),
        )
        for row in rows
    ]


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = command.parser("Predict what optimisations do to training on a GPU, then do it.")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--only", choices=tuple(NETWORKS), action="append", help="these networks")
    parser.add_argument("--traces", type=Path, metavar="FOLDER", help="keep the recordings there")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(arguments)
    names = options.only or tuple(NETWORKS)
    if options.device == "cuda" and not torch.cuda.is_available():
        print("no CUDA device: nothing is measured")
        rows = [
            {"case": f"{name}, {question}", "failure": "no CUDA device"}
            for name in names
            for question in QUESTIONS
        ]
        return command.finish("whatif_on_gpu", options, rows, bars_of(rows))
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        traces = options.traces or Path(folder)
        traces.mkdir(parents=True, exist_ok=True)
        for name in names:
            network = (SMALL if options.device == "cpu" else NETWORKS)[name]
            for row in measure(name, network, options.device, traces, 10 if options.quick else STEPS):
                rows.append(row)
                seen = (
                    row.get("failure")
                    or f"{row['predicted_us']:.0f} us predicted, {row['measured_us']:.0f} measured"
                )
                print(f"{row['case']}: {seen}", flush=True)
    options.traces = None if options.traces is None else "given"
    return command.finish("whatif_on_gpu", options, rows, bars_of(rows))


if __name__ == "__main__":
    sys.exit(main())
