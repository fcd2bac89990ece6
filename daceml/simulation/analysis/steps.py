"""How long the steps of a run take, in a schedule and as they were recorded."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Self

import numpy as np

from daceml.simulation.engine.schedule import Schedule
from daceml.simulation.graph import Floats, TaskGraph
from daceml.simulation.task import TaskKind

_SGLANG = re.compile(r"^step\[(?P<mode>\w+) ")
_VLLM = re.compile(r"^execute_(?:\d+_)?context_(?P<context>\d+)\(.*\)_generation_(?P<generation>\d+)\(")


@dataclass(frozen=True, kw_only=True, eq=False)
class StepTimes:
    """Moments of k steps, microseconds.

    Attributes:
        names: as the profiler numbered them.
        loop_us: [k] between the marks that a step begins and ends, on the thread of the loop: what the
            profiler shows. A device may lag behind.
        begun_us: [k] when the loop began the step.
        done_us: [k] when the loop had ended the step, and devices all work that it launched.
        step_us: what a step takes in the long run: the mean time between two steps that are done; of a
            single step, or of steps that are done all at once, the mean of their whole time.
        total_us: from the begin of the first step to the end of all.
    """

    names: tuple[str, ...]
    loop_us: Floats
    begun_us: Floats
    done_us: Floats
    step_us: float
    total_us: float


@dataclass(frozen=True, kw_only=True)
class StepScale:
    """Step times of a run and of its changed graphs, on one scale.

    The mean time between two ends of steps can grow where work goes away, as the first step may gain more
    than the last one. The time of all steps cannot: what it gains is spread over them.

    Attributes:
        recorded_us: a step of the recorded run, in the long run.
        total_us: from the begin of its first step to the end of all.
        steps: over how many a change of the whole time is spread: as many as there are, or more where work
            of earlier steps delays the first one.
    """

    recorded_us: float
    total_us: float
    steps: float

    @classmethod
    def of(cls, replay: Schedule) -> Self:
        """The scale of a run, from its replay as it was recorded."""
        seen = step_times(replay)
        steps = float(max(len(seen.names), 1))
        if seen.step_us > 0:
            steps = max(steps, seen.total_us / seen.step_us)
        return cls(recorded_us=seen.step_us, total_us=seen.total_us, steps=steps)

    def step_us(self, schedule: Schedule) -> float:
        """What a step of the run, or of a graph that it was changed into, takes in the long run."""
        return self.recorded_us + self.per_step_us(step_times(schedule).total_us - self.total_us)

    def per_step_us(self, total_us: float) -> float:
        """A time of all steps, spread over them."""
        return total_us / self.steps


def step_times(schedule: Schedule) -> StepTimes:
    """Those of a simulation."""
    return _times(schedule.graph, _begun_us(schedule), schedule.end_us)


def _begun_us(schedule: Schedule) -> Floats:
    """[n] starts, of a batch that the loop waits for when it asked for it: the wait belongs to the step."""
    graph, start_us = schedule.graph, schedule.start_us
    before = graph.structure.before
    asked_us = np.where(before >= 0, schedule.end_us[np.maximum(before, 0)], 0.0) + graph.tasks.gap_us
    waits = (graph.tasks.kind == TaskKind.DATA) & ~graph.on_device()
    return np.where(waits, np.minimum(asked_us, start_us), start_us)


def recorded_step_times(graph: TaskGraph) -> StepTimes:
    """Those of the run that a graph was made of; tasks that were inserted do not count."""
    return _times(graph, graph.tasks.recorded_us, graph.tasks.recorded_us + graph.tasks.duration_us)


def step_error(schedule: Schedule) -> float:
    """By how much the steps of a replay differ from those recorded, as a share: the mean over the steps.

    Of several kinds of steps that of the worst kind: a mean over all would hide the few. A server's loop runs
    ahead of its device: of such steps the time until the device is done counts, too.
    """
    seen, recorded = step_times(schedule), recorded_step_times(schedule.graph)
    if seen.names != recorded.names:  # tasks that were inserted were not recorded
        return 0.0
    kinds = np.array([step_kind(name) for name in seen.names])
    loops = _errors(seen.loop_us, recorded.loop_us)
    whole = _errors(seen.done_us - seen.begun_us, recorded.done_us - recorded.begun_us)
    worst = 0.0
    for kind in np.unique(kinds):
        for errors in (loops, whole) if kind else (loops,):
            known = errors[(kinds == kind) & np.isfinite(errors)]
            worst = max(worst, float(known.mean())) if len(known) else worst
    return worst


def _errors(now_us: Floats, was_us: Floats) -> Floats:
    """Shares; NaN of what took no time."""
    lasted = was_us > 0
    return np.where(lasted, np.abs(now_us / np.where(lasted, was_us, 1.0) - 1.0), np.nan)


def step_kind(name: str) -> str:
    """What a server of models does in a step: "prefill", "decode", "mixed"; "" where its mark says nothing.

    Marks are SGLang's `step[DECODE bs=32]`, vLLM's `execute_context_2(64)_generation_30(30)`, where sizes may
    stand before the numbers, and xDiT's `execute_diffusion_1_256x256`.
    """
    if found := _SGLANG.match(name):
        mode = found["mode"].lower()
        return {"extend": "prefill"}.get(mode, mode)
    if found := _VLLM.match(name):
        prefills, decodes = int(found["context"]) > 0, int(found["generation"]) > 0
        return "mixed" if prefills and decodes else "prefill" if prefills else "decode" if decodes else ""
    return "diffusion" if name.startswith("execute_diffusion_") else ""


@dataclass(frozen=True, kw_only=True)
class KindTime:
    """Steps of one kind: how many, and the mean time of one, from one step that is done to the next."""

    kind: str
    steps: int
    step_us: float


def kind_times(times: StepTimes) -> tuple[KindTime, ...]:
    """Times of each kind of step, in the order of the run; none of a run with steps of one kind."""
    kinds = [step_kind(name) for name in times.names]
    if len(set(kinds)) < 2:
        return ()
    done_us = np.maximum.accumulate(times.done_us)
    lasted_us = np.diff(done_us, prepend=done_us.max() - times.total_us)
    return tuple(
        KindTime(
            kind=kind or "other",
            steps=kinds.count(kind),
            step_us=float(np.mean(lasted_us[[own == kind for own in kinds]])),
        )
        for kind in dict.fromkeys(kinds)
    )


def _times(graph: TaskGraph, start_us: Floats, end_us: Floats) -> StepTimes:
    tasks = graph.tasks
    count = len(graph.step_names)
    known = np.isfinite(start_us)
    begin = np.full(count, np.inf)
    end = np.full(count, -np.inf)
    done = np.full(count, -np.inf)
    of_step = known & (tasks.step >= 0)
    marked = of_step & (tasks.kind == TaskKind.MARKER)
    loop = marked if marked.any() else of_step
    np.minimum.at(begin, tasks.step[loop], start_us[loop])
    np.maximum.at(end, tasks.step[loop], end_us[loop])
    np.maximum.at(done, tasks.step[of_step], end_us[of_step])
    seen = np.isfinite(begin) & np.isfinite(end)
    begin, end, done = begin[seen], end[seen], done[seen]
    total_us = float(done.max() - begin.min()) if len(done) else float(np.nanmax(end_us, initial=0.0))
    if len(done) > 1 and done.max() > done[0]:
        step_us = float((done.max() - done[0]) / (len(done) - 1))
    else:  # of steps that are done all at once, the mean
        step_us = total_us / max(len(done), 1)
    names = tuple(name for name, there in zip(graph.step_names, seen, strict=False) if there)
    return StepTimes(
        names=names, loop_us=end - begin, begun_us=begin, done_us=done, step_us=step_us, total_us=total_us
    )
