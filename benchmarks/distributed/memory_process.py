"""One process: what a training step holds on this processor, counted while it runs, and foretold.

`peak MODEL OPTIMIZER` compares the peak of a step with that of a capture, which runs nothing. `ways MODEL
ROUNDS` records a step of Adam once, foretells its peak and time with recomputation and with accumulation, and
only then runs these; steps of all ways take turns. The last line of the output is a row.
"""

from __future__ import annotations

import argparse
import dataclasses
import gc
import json
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import torch

import daceml
from benchmarks import quiet
from benchmarks.distributed.memory_models import (
    MODELS,
    OPTIMIZERS,
    REGIONS,
    Model,
    checkpointed,
    training_step,
)
from benchmarks.interleave import Step
from benchmarks.whatif.undisturbed import StepTime, median_us, timed
from daceml.interval import median_interval
from daceml.prediction.model_steps.predict_step import captured
from daceml.profiling.kineto import read_trace
from daceml.profiling.recording.step_plan import Part, Plan
from daceml.simulation import TaskGraph, build, simulate
from daceml.simulation.analysis.profiler_cost import without_profiler
from daceml.simulation.analysis.steps import step_times
from daceml.simulation.memory import (
    Allocations,
    accumulated,
    memory_over_time,
    recomputed,
    recorded_allocations,
    replay_events,
    trace_events,
)
from daceml.simulation.memory.events import PROCESSOR

STEPS = 3
RECORDED = 5
AS_IT_IS, RECOMPUTED = "as it is", "recomputation"
PARTS = {"accumulation of 2": 2, "accumulation of 4": 4}
WAYS = (AS_IT_IS, RECOMPUTED, *PARTS)


def measured_peak_bytes(make: Callable[[], Step]) -> int:
    """Of the last of three steps; every block counts, from before the model is made."""
    gc.collect()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "run.json"
        activities = [torch.profiler.ProfilerActivity.CPU]
        with torch.profiler.profile(activities=activities, profile_memory=True, acc_events=True) as profiler:
            step = make()
            for number in range(STEPS):
                with torch.profiler.record_function(f"step {number}"):
                    step()
        profiler.export_chrome_trace(str(file))
        trace = read_trace(file)
    timeline = replay_events(trace_events(trace, PROCESSOR))
    last = next(index for index in range(len(trace.events)) if trace.name_of(index) == f"step {STEPS - 1}")
    begin_us, end_us = float(trace.events.start_us[last]), float(trace.events.end_us[last])
    inside = (timeline.time_us >= begin_us) & (timeline.time_us <= end_us)
    # other models of this process are held, and counted since it was first profiled
    return int(timeline.allocated_bytes[inside].max()) - timeline.held_bytes


def peak(name: str, optimizer: str) -> dict[str, Any]:
    """A row: the peak of a step, measured, and predicted from shapes."""
    model = MODELS[name]
    step = captured(
        model.make(), model.inputs(model.samples), optimizer=OPTIMIZERS[optimizer], processor=True
    )
    if step.memory is None:
        raise RuntimeError(f"nobody knows what memory {name} needs")
    measured = measured_peak_bytes(lambda: _step(model, model.samples, optimizer, AS_IT_IS))
    return {
        "what": "peak from shapes",
        "model": name,
        "optimizer": optimizer,
        "measured_bytes": measured,
        "predicted_bytes": step.memory.peak,
        "error": step.memory.peak / measured - 1,
        "notes": list(step.notes),
    }


def ways(name: str, rounds: int) -> dict[str, Any]:
    """A row: peaks and times of a step as it is and of ways to make it hold less."""
    model = MODELS[name]
    foretold = _foretold(model)
    peaks = {way: measured_peak_bytes(lambda way=way: _step(model, model.batch, "adam", way)) for way in WAYS}
    steps = {way: _step(model, model.batch, "adam", way) for way in WAYS}
    times: dict[str, list[StepTime]] = {way: [] for way in WAYS}
    for number in range(rounds + 2):
        for way, step in steps.items():
            time = timed(step)
            if number >= 2:  # the first ones get fresh memory and fill caches
                times[way].append(time)
    return {"what": "ways to hold less", "model": name, "ways": [
        {
            "way": way,
            "measured_bytes": peaks[way],
            "predicted_bytes": foretold[way][0],
            "measured_us": median_us(times[way]),
            "interval_us": _interval(times[way]),
            "predicted_us": foretold[way][1],
        }
        for way in WAYS
    ]}  # fmt: skip


def _foretold(model: Model) -> dict[str, tuple[int, float]]:
    """Bytes and microseconds of a step with each way, from a recording of the step as it is."""
    made, x = model.make(), model.inputs(model.batch)
    shapes = captured(made, x, optimizer=OPTIMIZERS["adam"], processor=True).memory
    if shapes is None or shapes.allocations is None:
        raise RuntimeError("nobody knows what the model holds between steps")
    # of a processor, a profiler does not say what was there before
    held = int(shapes.allocations.size_bytes[shapes.allocations.taken_by < 0].sum())
    optimizer = OPTIMIZERS["adam"](made.parameters())
    step = training_step(made, optimizer, x)
    plan = Plan(steps=RECORDED, warmup=2, unprofiled=RECORDED)
    times: list[StepTime] = []
    with daceml.profile(
        made, optimizer, steps=plan.steps, warmup=plan.warmup, unprofiled=plan.unprofiled, memory=True
    ) as recording:
        while not recording.done:
            times.append(timed(step))
            recording.step()
    graph = build(recording.trace)
    blocks = recorded_allocations(recording.trace, graph)
    part = {one: [time for index, time in enumerate(times) if plan.part(index) is one] for one in Part}
    plain = [*part[Part.BEFORE][1:], *part[Part.AFTER][1:]]
    inflation = median_us(part[Part.ACTIVE]) / median_us(plain)
    graph = without_profiler(dataclasses.replace(graph, inflation=inflation))
    found = {
        AS_IT_IS: _of(graph, blocks, held),
        RECOMPUTED: _of(*recomputed(graph, blocks, layers=REGIONS), held),
    }
    for way, parts in PARTS.items():
        peak_bytes, part_us = _of(*accumulated(graph, blocks, every=parts), held)
        found[way] = peak_bytes, parts * part_us
    return found


def _of(graph: TaskGraph, blocks: Allocations, held: int) -> tuple[int, float]:
    schedule = simulate(graph)
    return (
        held + memory_over_time(schedule, blocks).peak_bytes,
        float(median(step_times(schedule).loop_us)),
    )


def _step(model: Model, samples: int, optimizer: str, way: str) -> Step:
    torch.manual_seed(0)
    made = model.make()
    made = checkpointed(made) if way == RECOMPUTED else made
    update = OPTIMIZERS[optimizer](made.parameters())
    return training_step(made, update, model.inputs(samples), parts=PARTS.get(way, 1))


def _interval(times: Sequence[StepTime]) -> tuple[float, float]:
    found = median_interval([one.wall_us for one in times])
    return found.low, found.high


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    asked = parser.add_subparsers(dest="asked", required=True)
    one = asked.add_parser("peak")
    one.add_argument("model", choices=tuple(MODELS))
    one.add_argument("optimizer", choices=tuple(OPTIMIZERS))
    one = asked.add_parser("ways")
    one.add_argument("model", choices=tuple(name for name, model in MODELS.items() if model.batch))
    one.add_argument("rounds", type=int)
    options = parser.parse_args(arguments)
    quiet.claim_priority()
    row = (
        peak(options.model, options.optimizer)
        if options.asked == "peak"
        else ways(options.model, options.rounds)
    )
    print(json.dumps(row))
    return 0


if __name__ == "__main__":
    sys.exit(main())
