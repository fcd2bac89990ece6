"""Predictions from one recording of an eager run, and the runs that they foretell, on a CPU.

Each round of a question is a whole experiment: record the run as it is, predict, and only then run what was
predicted, so that the prediction has seen nothing of it. Errors are taken within rounds, as machines change.
One thread, since a second one waits for whoever disturbs the first.

The profiler costs some time for each operator that it records. Steps of the same run without it tell how
much, and predictions are of a run without it. How much, that is taken of undisturbed steps here.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch

import daceml
from benchmarks import ceilings, quiet
from benchmarks.interleave import TUNED_ALLOCATOR, Step
from benchmarks.machine import ROOT
from benchmarks.whatif.jobs import Perceptrons, adam, inference_step, training_step
from benchmarks.whatif.static_costs import between_products_us
from benchmarks.whatif.undisturbed import FEWEST, StepTime, clean, median_us, timed, undisturbed
from daceml.profiling.recording.recording import Recording
from daceml.profiling.recording.step_plan import Part, Plan
from daceml.report.explanation.explanation import explain_program
from daceml.simulation.analysis.steps import step_times
from daceml.simulation.building.build import build
from daceml.simulation.graph import TaskGraph
from daceml.simulation.whatif.compiled_region import CompiledRegion
from daceml.simulation.whatif.fused_adam import FusedAdam
from daceml.simulation.whatif.larger_batch import LargerBatch
from daceml.simulation.whatif.optimization import Optimization
from daceml.simulation.whatif.whatif_result import predict

WARMUP = 3
MEMORY_BYTES = 6 << 30
PATIENCE = 3  # rounds that are run for each that is wanted
_UPDATED = 40 * 2**20  # numbers: far more than caches hold


@dataclass(frozen=True, kw_only=True)
class Question:
    """What is recorded, what is asked, and what is run to see.

    Attributes:
        recorded: a step of the run as it is, with the recording that watches it.
        asked: the optimisation, from the recording and the machine's rates.
        real: a step of the run with the optimisation.
    """

    recorded: tuple[Step, Callable[[int], Recording]]
    asked: Callable[[Recording, ceilings.Ceilings], Optimization]
    real: Step


def fused_variant() -> Question:
    """Inference of an eager network, compiled by daceml: kernels from static costs, products as recorded.

    An eager product adds its bias, which the compiled program does in the kernel behind it: the prediction
    has that twice. It has GELU too cheap, whose error function costs more than the exponential that the
    machine's rate of special functions stands for.
    """
    torch.manual_seed(0)
    model = Perceptrons(blocks=2, width=128, hidden=256).eval()
    x = torch.randn(32_768, 128)
    costs = explain_program(model, x).steps  # compiles, and runs nothing
    compiled = daceml.compile(model, backward=False)

    def asked(_: Recording, rates: ceilings.Ceilings) -> Optimization:
        return CompiledRegion(between_products_us=between_products_us(costs, rates))

    return Question(
        recorded=(inference_step(model, x), lambda steps: daceml.profile(model, **_plan(steps))),
        asked=asked,
        real=inference_step(compiled, x),
    )


def fused_optimizer() -> Question:
    """Adam as one operator for all weights, where it was one operator after the other for each."""
    models = [_large_network() for _ in range(2)]
    plain, fused = adam(models[0], fused=False), adam(models[1], fused=True)
    x = torch.randn(64, 512)

    def asked(recording: Recording, _: ceilings.Ceilings) -> Optimization:
        weights = sum(gradient["size_bytes"] for gradient in recording.header["gradients"]) / 4
        return FusedAdam(parameters=weights, bytes_per_s=update_bytes_per_s())

    return Question(
        recorded=(
            training_step(models[0], plain, x),
            lambda steps: daceml.profile(models[0], plain, **_plan(steps)),
        ),
        asked=asked,
        real=training_step(models[1], fused, x),
    )


def larger_batch() -> Question:
    """Training with twice the batch; every operator but the optimizer's is taken to grow with it."""
    model = _large_network()
    optimizer = adam(model, fused=False)
    x = torch.randn(256, 512)
    return Question(
        recorded=(
            training_step(model, optimizer, x[:128]),
            lambda steps: daceml.profile(model, optimizer, **_plan(steps)),
        ),
        asked=lambda _, __: LargerBatch(ratio=2.0),
        real=training_step(model, optimizer, x),
    )


QUESTIONS: dict[str, Callable[[], Question]] = {
    "fused variant": fused_variant,
    "fused optimizer": fused_optimizer,
    "larger batch": larger_batch,
}


def measure(name: str, *, rounds: int, steps: int) -> dict[str, Any]:
    """Predictions and runs, microseconds a step; medians over the rounds that nobody disturbed.

    A round is a process of its own. One with too few undisturbed steps is run again, a few times in all;
    `quiet_rounds` says how many count, and where that is 0, those that were disturbed do.

    Raises:
        RuntimeError: one failed; the message is what it said last.
    """
    seen: list[dict[str, float]] = []
    while len(quiet_ones := [one for one in seen if one["fewest_clean"] >= FEWEST]) < rounds:
        if len(seen) == PATIENCE * rounds:
            break
        seen.append(_in_process(name, steps))
    return summary(name, quiet_ones or seen, len(quiet_ones))


def summary(name: str, rounds: Sequence[dict[str, float]], quiet_rounds: int) -> dict[str, Any]:
    """A row: the median of each figure, and the errors of all rounds."""
    middle = {key: median(one[key] for one in rounds) for key in rounds[0]}
    errors = [one["error"] for one in rounds]
    return {"case": f"real, {name}", "quiet_rounds": quiet_rounds, "round_errors": errors, **middle}


def one_round(question: Question, steps: int) -> dict[str, float]:
    """Record, predict, run."""
    rates = ceilings.measure(runs=5)
    step, record = question.recorded
    times: list[StepTime] = []
    with record(steps) as recording:
        while not recording.done:
            times.append(timed(step))
            recording.step()
    graph = build(recording.trace)
    told = foretold(graph, question.asked(recording, rates), recording.plan, times)
    for _ in range(WARMUP):
        question.real()
    real = [timed(question.real) for _ in range(steps)]
    measured_us = median_us(real)
    return {
        **told,
        "measured_us": measured_us,
        "error": told["predicted_us"] / measured_us - 1,
        "fewest_clean": min(told["fewest_clean"], clean(real)),
    }


def foretold(
    graph: TaskGraph, asked: Optimization, plan: Plan, times: Sequence[StepTime]
) -> dict[str, float]:
    """What a step of the changed run takes without the profiler.

    Args:
        graph: of the recorded steps.
        times: of all steps of the plan.
    """
    part = {one: [time for index, time in enumerate(times) if plan.part(index) is one] for one in Part}
    recorded = part[Part.ACTIVE]
    # The first step of each part finds caches and memory as the part before has left them.
    plain = [*part[Part.BEFORE][1:], *part[Part.AFTER][1:]]
    inflation = median_us(recorded) / median_us(plain)
    found = predict(dataclasses.replace(graph, inflation=inflation), [asked])
    loop_us = step_times(found.schedule).loop_us
    predicted_us = median(loop_us[index] for index in undisturbed(recorded))
    return {
        "recorded_us": median_us(plain),
        "inflation": inflation,
        "replay_error": found.replay_error,
        "fewest_clean": min(clean(recorded), clean(plain)),
        "predicted_us": predicted_us,
        "fast_us": predicted_us * found.fast_us / found.step_us,
        "slow_us": predicted_us * found.slow_us / found.step_us,
    }


def update_bytes_per_s(runs: int = 5) -> float:
    """That memory moves where results replace operands: nothing is read only to be overwritten."""
    weights, update = torch.ones(_UPDATED), torch.ones(_UPDATED)
    best_us = min(timed(lambda: weights.add_(update)).wall_us for _ in range(runs))
    return 3 * 4 * _UPDATED / best_us * 1e6


def _plan(steps: int) -> dict[str, Any]:
    return {"steps": steps, "warmup": WARMUP, "unprofiled": steps // 2}


def _large_network() -> Perceptrons:
    """8.4 million weights, so that the optimizer counts."""
    torch.manual_seed(0)
    return Perceptrons(blocks=4, width=512, hidden=2048)


def _in_process(name: str, steps: int) -> dict[str, float]:
    """A round with one thread, and with the allocator that all benchmarks use."""
    line = [sys.executable, "-m", "benchmarks.whatif.real", name, str(steps)]
    environment = {**os.environ, **TUNED_ALLOCATOR, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(line, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        said = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise RuntimeError(f"{name} ended with exit code {done.returncode}: {said}")
    return json.loads(done.stdout.splitlines()[-1])


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("case", choices=tuple(QUESTIONS))
    parser.add_argument("steps", type=int)
    options = parser.parse_args(arguments)
    # A prediction that needs more has a fault; the machine's other work should not be what ends for it.
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES, MEMORY_BYTES))
    question = QUESTIONS[options.case]()
    quiet.claim_priority()
    print(json.dumps(one_round(question, options.steps)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
