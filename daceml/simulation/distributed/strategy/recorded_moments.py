"""When each rank of a recorded run came to what: backward passes, gradients, the end of steps."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from daceml.errors import RecordedStepError
from daceml.simulation.distributed.clocks.alignment import Alignment
from daceml.simulation.distributed.matching import MatchedRun
from daceml.simulation.distributed.rank_run import RankRun
from daceml.simulation.graph import NOTHING, Floats, TaskGraph
from daceml.simulation.task import Phase
from daceml.simulation.whatif.backward_phases import computing, nearest
from daceml.simulation.whatif.gradients import Gradient

# Operators that begin collectives: what follows a layer up to them still makes its gradients ready.
_BEGINS_COLLECTIVE = re.compile(r"^(c10d::|nccl:|gloo:|mpi:)")


@dataclass(frozen=True, kw_only=True, eq=False)
class Moments:
    """Of k steps of n ranks with m gradients, by the clock of the first rank, in microseconds.

    Attributes:
        began_us: [k, n] when the step before was over; of the first one, its mark.
        backward_us: [k, n] when the first work of the backward pass began.
        ready_us: [k, n, m] when a gradient was complete, with all before it in the order of sending.
        passed_us: [k, n] when the backward pass was over.
        ended_us: [k, n] when the last work of the step was over.
        unknown_share: of the gradients' bytes, those of which nobody knows what computes them.
    """

    began_us: Floats
    backward_us: Floats
    ready_us: Floats
    passed_us: Floats
    ended_us: Floats
    unknown_share: float

    @property
    def lasting_us(self) -> Floats:
        """[k] each step, as ranks see it in the mean: those that begin early wait at its end."""
        return self.ended_us.mean(axis=1) - self.began_us.mean(axis=1)


def moments_of(run: MatchedRun, alignment: Alignment, gradients: Sequence[Gradient]) -> Moments:
    """Those of the steps that all ranks have.

    A gradient is complete when the last work of its layer in the backward pass is over, and what follows that
    without belonging to a layer, such as the copy into a bucket. Where nobody knows what computes it, it is
    complete when the same share of the pass is over as it and those before it have of all bytes.

    Args:
        alignment: of `run.timings`.
        gradients: in the order in which they are sent.
    Raises:
        RecordedStepError: a rank has no step with a backward pass.
    """
    ranks = [
        _rank_steps(one, _clock(run, alignment, column, one), gradients)
        for column, one in enumerate(run.ranks)
    ]
    count = min(len(steps) for steps, _ in ranks)
    table = np.array([steps[:count] for steps, _ in ranks]).transpose(1, 0, 2)  # [k, n, 4 + m]
    return Moments(
        began_us=table[:, :, 0],
        backward_us=table[:, :, 1],
        passed_us=table[:, :, 2],
        ended_us=table[:, :, 3],
        ready_us=table[:, :, 4:],
        unknown_share=max(unknown for _, unknown in ranks),
    )


def _clock(run: MatchedRun, alignment: Alignment, column: int, rank: RankRun) -> Floats:
    """[tasks] when each began, by the clock of the first rank."""
    own_us = rank.graph.tasks.recorded_us + (rank.first_us - run.origin_us)
    return own_us + alignment.offset_us[column] + alignment.drift_ppm[column] * own_us * 1e-6


def _rank_steps(
    rank: RankRun, start_us: Floats, gradients: Sequence[Gradient]
) -> tuple[list[list[float]], float]:
    """Of each step: began, backward, passed, ended, and when each gradient was ready."""
    graph, tasks = rank.graph, rank.graph.tasks
    end_us = start_us + tasks.duration_us
    work = computing(graph)
    backward = work & (tasks.phase == Phase.BACKWARD)
    steps = [int(step) for step in np.unique(tasks.step[backward]) if step != NOTHING]
    if not steps:
        raise RecordedStepError(
            f"rank {rank.rank} has no recorded step with a backward pass",
            where=graph.source,
            why="nothing in the trace belongs to a backward pass within a step",
            fix="record a training loop with daceml.profile(model), and call step() at the end of each step",
        )
    on_device = bool(graph.on_device()[work].any())
    before_us = -np.inf
    rows: list[list[float]] = []
    unknown = 0.0
    for step in steps:
        own = np.flatnonzero(work & (tasks.step == step))
        passing = np.flatnonzero(backward & (tasks.step == step))
        passing = passing[np.argsort(start_us[passing], kind="stable")]
        if not np.isfinite(before_us):
            marked = own if on_device else np.flatnonzero(tasks.step == step)
            before_us = float(np.nanmin(start_us[marked]))
        ready_us, unknown = _ready(graph, passing, end_us, gradients)
        ended_us = float(end_us[own].max())
        rows.append(
            [before_us, float(start_us[passing[0]]), float(end_us[passing].max()), ended_us, *ready_us]
        )
        before_us = ended_us
    return rows, unknown


def _ready(
    graph: TaskGraph, passing: np.ndarray[tuple[int], np.dtype[np.intp]], end_us: Floats,
    gradients: Sequence[Gradient],
) -> tuple[list[float], float]:  # fmt: skip
    """When each gradient was complete, and the share of bytes of which that is guessed."""
    last_us: dict[str, float] = {}
    layer = ""
    for task in passing.tolist():
        layer = graph.layer_of(task) or layer
        if _BEGINS_COLLECTIVE.match(graph.name_of(task)):
            layer = ""
        if layer:
            last_us[layer] = max(last_us.get(layer, -np.inf), float(end_us[task]))
    known: dict[str, tuple[int, ...]] = dict.fromkeys(last_us, ())
    done_us = np.cumsum(graph.tasks.duration_us[passing])
    total = sum(one.size_bytes for one in gradients)
    sent = unknown = 0.0
    latest_us = -np.inf
    found: list[float] = []
    for one in gradients:
        sent += one.size_bytes
        near = nearest(one.layer, known)
        if near is None:
            unknown += one.size_bytes
            place = int(np.searchsorted(done_us, sent / total * done_us[-1] * (1 - 1e-12)))
            moment_us = float(end_us[passing[min(place, len(passing) - 1)]])
        else:
            moment_us = last_us[near]
        latest_us = max(latest_us, moment_us)
        found.append(latest_us)
    return found, unknown / total
