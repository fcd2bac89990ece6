"""A step of another batch on another device: from one recorded run, or between and beyond several."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from daceml.devices.roofline import USUAL_FLOOR_US
from daceml.devices.specification import Device
from daceml.errors import PredictionError
from daceml.operations.estimate import DurationSource
from daceml.prediction.recorded_runs.cross_device import RecordedRun
from daceml.prediction.recorded_runs.device_prediction import DevicePrediction
from daceml.prediction.recorded_runs.retiming_rules import Rule
from daceml.profiling.kernel_class import KernelClass
from daceml.simulation.graph import Floats, TaskGraph
from daceml.simulation.whatif.larger_batch import LargerBatch
from daceml.simulation.whatif.optimization import Estimate, Optimization


@dataclass(frozen=True, kw_only=True)
class BatchRun:
    """A recorded run and how many samples a step of it had."""

    run: RecordedRun
    batch: float


@dataclass(frozen=True, kw_only=True, eq=False)
class GrownKinds(Optimization):
    """Each kind of kernel as much longer as runs of several batches say.

    Attributes:
        factors: [n] of every task's duration.
        ratio: of the batch to that of the run.
    """

    option: ClassVar[str] = "grown-kinds"
    title: ClassVar[str] = "another batch"
    source: ClassVar[str] = "straight lines with an intercept, as Qi et al., Paleo (ICLR '17), measured"
    family: ClassVar[str] = "batch"

    factors: Floats
    ratio: float

    @property
    def samples(self) -> float:
        return self.ratio

    def apply(self, graph: TaskGraph) -> TaskGraph:
        return graph.with_times(duration_us=graph.tasks.duration_us * self.factors)

    def assumptions(self, graph: TaskGraph) -> tuple[str, ...]:
        return ("each kind of kernel grows with the batch along a straight line through the recorded runs",)


def with_batch(
    runs: Sequence[BatchRun],
    batch: float,
    destination: Device,
    *,
    source: DurationSource | None = None,
    references: Rule | None = None,
    host_factor: float = 1.0,
    optimizations: Sequence[Optimization] = (),
) -> DevicePrediction:
    """A step of `batch` samples on another device.

    One run grows by floor and slope, as `--batch` of the what-if questions does; of several runs the nearest
    grows by straight lines through all, one for each kind of kernel.

    Raises:
        PredictionError: no run, a batch that is none, runs of one batch or of several devices.
    """
    if not runs or not all(0 < one < math.inf for one in (batch, *(run.batch for run in runs))):
        raise PredictionError(
            f"a batch of {batch:g} cannot be predicted",
            why="a batch is a number above zero" if runs else "no run was recorded",
            fix="say how many samples a recorded step had: --batch-recorded N",
        )
    if len({one.run.origin.name for one in runs}) > 1:
        names = ", ".join(dict.fromkeys(one.run.origin.name for one in runs))
        raise PredictionError(
            "these runs were recorded on several devices", why=names, fix="take runs of one of them"
        )
    if len(runs) > 1 and len({one.batch for one in runs}) < len(runs):
        raise PredictionError(
            "two runs have the same batch", why=", ".join(f"{one.batch:g}" for one in runs),
            fix="give the batch of each trace, in the order of the traces: --batch-recorded 8,16",
        )  # fmt: skip
    nearest = min(runs, key=lambda one: abs(math.log(batch / one.batch)))
    several = len(runs) > 1
    grown = (_lines if several else _floor)(runs, nearest, batch, destination, source, references)
    return nearest.run.on(
        destination, source=source, references=references, host_factor=host_factor,
        optimizations=[*grown, *optimizations], batch=nearest.batch,
    )  # fmt: skip


def _floor(
    runs: Sequence[BatchRun],
    run: BatchRun,
    batch: float,
    destination: Device,
    source: DurationSource | None,
    references: Rule | None,
) -> list[Optimization]:
    if batch == run.batch:
        return []
    floor_us = USUAL_FLOOR_US if destination.floor_us is None else destination.floor_us.value
    return [LargerBatch(ratio=batch / run.batch, floor_us=Estimate(floor_us / 2, fast=floor_us, slow=0.0))]


def _lines(
    runs: Sequence[BatchRun],
    nearest: BatchRun,
    batch: float,
    destination: Device,
    source: DurationSource | None,
    references: Rule | None,
) -> list[Optimization]:
    times: dict[KernelClass, list[tuple[float, float]]] = {}
    for one in runs:
        for kind in one.run.retimed(destination, source, references).by_class():
            times.setdefault(kind.kind, []).append((one.batch, kind.duration_us))
    factors = {
        kind: _factor(points, nearest.batch, batch) for kind, points in times.items() if len(points) > 1
    }
    column = np.ones(len(nearest.run.graph))
    for task in nearest.run.retimed(destination, source, references).tasks:
        column[task.task] = factors.get(task.kind, 1.0)
    return [GrownKinds(factors=column, ratio=batch / nearest.batch)]


def _factor(points: Sequence[tuple[float, float]], known: float, wanted: float) -> float:
    """The line at the wanted batch over the line at the known one; never below zero."""
    batches, times_us = (np.array(column) for column in zip(*points, strict=True))
    slope, intercept = np.polyfit(batches, times_us, 1)
    at_known = slope * known + intercept
    return max(float((slope * wanted + intercept) / at_known), 0.0) if at_known > 0 else 1.0
