"""A step of a recorded run on another device: its kernels retimed, the threads as they were, and a replay.

Source: Yu et al., Habitat (ATC '21), for the kernels; the replay adds what a sum of kernels leaves out: calls
that are slower than what they launch, streams that overlap, and threads that wait.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from daceml.devices.specification import Device
from daceml.errors import PredictionError
from daceml.operations.estimate import DurationSource
from daceml.prediction.recorded_runs.device_prediction import DevicePrediction
from daceml.prediction.recorded_runs.device_run import DeviceTask, device_tasks
from daceml.prediction.recorded_runs.recording_device import origin_of
from daceml.prediction.recorded_runs.retimed_tasks import RetimedTask, Retiming, by_class
from daceml.prediction.recorded_runs.retiming import retime
from daceml.prediction.recorded_runs.retiming_rules import Rule
from daceml.profiling.trace import EventKind, Trace
from daceml.simulation.analysis.guards import Answer, check_answer, remaining_work_us
from daceml.simulation.analysis.profiler_cost import without_profiler
from daceml.simulation.analysis.reliability import HostLimit, host_limits, without_host
from daceml.simulation.analysis.steps import StepScale, step_error
from daceml.simulation.building.build import Options, build
from daceml.simulation.engine import Schedule, simulate
from daceml.simulation.graph import TaskGraph
from daceml.simulation.primitives.scale import scale, scale_gaps
from daceml.simulation.task import TaskKind
from daceml.simulation.whatif.optimization import Optimization, Side, applied

_MOST_UNLINKED = 0.2  # as `daceml.simulation.building.build` has it of a graph
_SIDES: tuple[Side, ...] = ("likely", "fast", "slow")
HOST_STAYS = "threads of the host take what they took: their time does not transfer, and no device says it"


@dataclass(frozen=True, kw_only=True)
class RecordedRun:
    """A trace that was read and built once, for predictions for several devices.

    Attributes:
        graph: without what the profiler cost, and of no certain card.
        baseline: the replay of the run as it was recorded.
    """

    trace: Trace
    origin: Device
    graph: TaskGraph
    baseline: Schedule

    @classmethod
    def of(
        cls, trace: Trace, *, origin: str | Device | None = None, queue_depth: int | None = None
    ) -> RecordedRun:
        """Build the task graph of a trace.

        Raises:
            PredictionError: no device ran anything, or too many kernels were launched by calls that the trace
                lacks.
            OriginDeviceError: it is not known on which device it was recorded.
            TraceContentError: no task graph can be made of it.
        """
        if not len(trace.events.of(EventKind.KERNEL)):
            raise PredictionError(
                "no device worked in this run",
                where=trace.source,
                why="it has no kernels: what operators of a processor take elsewhere is not in its trace",
                fix="record it on a GPU; or track it with daceml.OperationTracker, which records what "
                "operators do",
            )
        device = origin_of(trace, origin)
        _check_links(trace)
        recorded = build(trace, Options(queue_depth=queue_depth))
        return cls(
            trace=trace,
            origin=device,
            graph=replace(without_profiler(recorded), card="", formats=None),
            baseline=simulate(recorded),
        )

    def retimed(
        self,
        destination: Device,
        source: DurationSource | None = None,
        references: Rule | None = None,
    ) -> Retiming:
        """Its kernels on another device."""
        return retime(
            self.graph,
            self.trace,
            origin=self.origin,
            destination=destination,
            source=source,
            references=references,
            tasks=self._tasks,
        )

    @cached_property
    def _tasks(self) -> tuple[DeviceTask, ...]:
        return device_tasks(self.graph, self.trace)

    @cached_property
    def _scale(self) -> StepScale:
        return StepScale.of(self.baseline)

    @cached_property
    def _recorded_us(self) -> float:
        return self._scale.step_us(simulate(self.graph))

    def on(
        self,
        destination: Device,
        *,
        source: DurationSource | None = None,
        references: Rule | None = None,
        host_factor: float = 1.0,
        optimizations: Sequence[Optimization] = (),
        batch: float | None = None,
    ) -> DevicePrediction:
        """A step of this run on another device.

        Args:
            source: of durations of operations on the destination.
            references: what other runs that were recorded on both devices say (`reference_runs`).
            host_factor: how many times as long threads take there: the caller's word for it.
            optimizations: that are applied to the run on the destination.
            batch: samples in a recorded step.
        Raises:
            PredictionError: the factor is no number above zero.
            WhatIfError: an optimisation cannot be applied.
            ImplausibleAnswerError: the answer breaks a law of every run.
        """
        if not 0 < host_factor < float("inf"):
            raise PredictionError(
                f"threads cannot take {host_factor} times as long", fix="give a number above 0"
            )
        retiming = self.retimed(destination, source, references)
        graphs: dict[Side, TaskGraph] = {
            side: self._changed(retiming, side, host_factor, optimizations) for side in _SIDES
        }
        tasks = _after(retiming, graphs)
        schedules = {side: simulate(graph) for side, graph in graphs.items()}
        step_us = {side: self._scale.step_us(schedule) for side, schedule in schedules.items()}
        device_us = [self._scale.step_us(simulate(without_host(graph))) for graph in graphs.values()]
        times_us = list(step_us.values())
        host: HostLimit | None = None
        if host_limits(step_us["likely"], device_us[0]):
            slow = self._changed(retiming, "slow", host_factor, optimizations, threads=self.baseline.graph)
            recorded_us = self._scale.step_us(simulate(slow))
            host = HostLimit(step_us=step_us["likely"], device_us=device_us[0], recorded_us=recorded_us)
            times_us += [*device_us, recorded_us]
        error = step_error(self.baseline)
        assumptions = [
            HOST_STAYS if host_factor == 1.0 else f"threads take {host_factor:g} times as long, as was said"
        ]
        for one in optimizations:
            assumptions += one.assumptions(self.graph)
        samples = 1.0
        for one in optimizations:
            samples *= one.samples
        found = DevicePrediction(
            origin=self.origin,
            destination=destination,
            recorded_us=self._recorded_us,
            step_us=step_us["likely"],
            fast_us=min(times_us) * max(1.0 - error, 0.0),
            slow_us=max(times_us) * (1.0 + error),
            host=host,
            number_format=", ".join(one.number_format for one in optimizations if one.number_format),
            classes=by_class(tasks, retiming.steps),
            tasks=tasks,
            batch=None if batch is None else batch * samples,
            schedule=schedules["likely"],
            replay_error=error,
            assumptions=tuple(dict.fromkeys(assumptions)),
        )
        slower = any(one.duration_us > one.recorded_us for one in retiming.tasks)
        check_answer(
            Answer(
                title=f"a step on {destination.name}",
                step_us=found.step_us,
                low_us=found.fast_us,
                high_us=found.slow_us,
                baseline_us=self._recorded_us,
                may_cost=slower or host_factor > 1 or any(one.may_cost for one in optimizations),
                least_us=self._scale.per_step_us(remaining_work_us(graphs["likely"])),
            ),
            where=self.trace.source,
        )
        return found

    def _changed(
        self,
        retiming: Retiming,
        side: Side,
        host_factor: float,
        optimizations: Sequence[Optimization],
        *,
        threads: TaskGraph | None = None,
    ) -> TaskGraph:
        """The run on the destination.

        Args:
            threads: the same tasks with other times of threads; None takes those without the profiler.
        """
        duration_us = retiming.durations_us(side)
        graph = self.graph.with_times(duration_us=duration_us)
        if threads is not None:
            on_device = graph.on_device()
            graph = graph.with_times(
                duration_us=np.where(on_device, duration_us, threads.tasks.duration_us),
                gap_us=np.where(on_device, graph.tasks.gap_us, threads.tasks.gap_us),
            )
        if host_factor != 1.0:
            on_thread = ~graph.on_device() & (graph.tasks.kind != TaskKind.MARKER)
            graph = scale(graph, on_thread, host_factor)
            graph = scale_gaps(graph, on_thread & (graph.structure.before >= 0), host_factor)
        for one in optimizations:
            graph = applied(one.at(side), graph)
        return graph


def _check_links(trace: Trace) -> None:
    """Refuse a run of which it is not known what its kernels belong to."""
    kernels = trace.events.of(EventKind.KERNEL)
    calls = trace.events.correlation[trace.events.of(EventKind.CALL)]
    unlinked = ~np.isin(trace.events.correlation[kernels], calls[calls >= 0])
    if unlinked.mean() > _MOST_UNLINKED:
        busy_us = trace.events.duration_us[kernels]
        count, share = unlinked.sum(), busy_us[unlinked].sum() / max(busy_us.sum(), 1e-9)
        raise PredictionError(
            f"{count} of the {len(kernels)} kernels ({unlinked.mean():.0%}) were launched by calls that the"
            " trace lacks",
            where=trace.source,
            why=f"they are {share:.0%} of the device's time; what a kernel computes, and in which step, is"
            " known through the call that launched it",
            fix="record again with the CPU side from a warm-up step on: daceml.profile does",
        )


def _after(retiming: Retiming, graphs: Mapping[Side, TaskGraph]) -> tuple[RetimedTask, ...]:
    """The tasks of steps as the optimisations left them; one that was taken out takes no time."""
    place = {
        side: graph.index_of(retiming.graph.tasks.key[[one.task for one in retiming.counted]])
        for side, graph in graphs.items()
    }

    def lasts_us(side: Side, at: int) -> float:
        where = int(place[side][at])
        return float(graphs[side].tasks.duration_us[where]) if where >= 0 else 0.0

    found: list[RetimedTask] = []
    for at, one in enumerate(retiming.counted):
        times = sorted(lasts_us(side, at) for side in _SIDES)
        found.append(replace(one, low_us=times[0], duration_us=lasts_us("likely", at), high_us=times[-1]))
    return tuple(found)
