"""Other models that were recorded on both devices: by how much ratios of rooflines were off there.

A pair of traces says of each operation that both have what it took here and there. How far that is from the
ratio of rooflines depends on the kind of kernel and on how much it does: small kernels take what a launch
takes, large ones what they do. So it is learned for each kind, along the logarithm of the bytes.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import exp, log, log2

import numpy as np
from numpy.typing import NDArray

from daceml.devices.roofline import Work
from daceml.errors import PredictionError
from daceml.operations.database.canonical import operation_text
from daceml.prediction.recorded_runs.device_run import DeviceTask, device_tasks
from daceml.prediction.recorded_runs.recording_device import origin_of
from daceml.prediction.recorded_runs.retimed_tasks import Guess
from daceml.prediction.recorded_runs.retiming_rules import Question, by_roofline
from daceml.profiling.kernel_class import PRODUCTS, KernelClass
from daceml.profiling.trace import Trace
from daceml.simulation.building.build import build

# of one kind, before anything is said of it
LEAST_CALLS = 10
_LEAST_OF_SIZE = 3  # a median of fewer is no median
# Beyond the sizes that were seen by more than this factor, it is said that nothing was seen there.
_NEAR = 4.0
# what remains uncertain at least, of one model and one pair of machines
_LEAST_WITHIN = 1.25

Kind = tuple[KernelClass, str]
"""What a kernel does, and of products in what they compute."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Correction:
    """Of one kind of kernel, from one device to another.

    Attributes:
        calls: how many it is known from.
        log2_bytes: [k] sizes, ascending.
        log_factor: [k] logarithm of what was recorded, over what the ratio of rooflines says.
        within: nine in ten of the calls are within this factor of the line.
    """

    calls: int
    log2_bytes: NDArray[np.float64]
    log_factor: NDArray[np.float64]
    within: float

    def factor(self, bytes_moved: float) -> float:
        """By which the ratio of rooflines is to be multiplied; beyond all sizes, that of the nearest."""
        return exp(float(np.interp(log2(max(bytes_moved, 1.0)), self.log2_bytes, self.log_factor)))

    def reaches(self, bytes_moved: float) -> bool:
        """Whether anything of about this size was seen."""
        size, near = log2(max(bytes_moved, 1.0)), log2(_NEAR)
        return bool(self.log2_bytes[0] - near <= size <= self.log2_bytes[-1] + near)


@dataclass(frozen=True, kw_only=True)
class ReferenceRuns:
    """Corrections by devices and kinds; a rule of retiming."""

    corrections: Mapping[tuple[str, str], Mapping[Kind, Correction]]

    def __call__(self, task: DeviceTask, question: Question) -> Guess | str:
        """The ratio of rooflines, corrected."""
        pair = (question.origin.name, question.destination.name)
        if pair not in self.corrections:
            return f"no other run was recorded on {pair[0]} and {pair[1]}"
        found = by_roofline(task, question)
        if isinstance(found, str) or task.work is None:
            return str(found)
        known = self.corrections[pair].get(_kind(task.kind, task.work))
        if known is None:
            return f"runs recorded on both devices say nothing of {task.kind}"
        moved = task.work.bytes_moved
        factor, reached = known.factor(moved), known.reaches(moved)
        duration_us = found.duration_us * factor
        # where nothing was seen, limits are those of the ratio alone
        low, high = (known.within, known.within) if reached else _limits(found)
        return Guess(
            duration_us=duration_us,
            low_us=duration_us / low,
            high_us=duration_us * high,
            method="references",
            reason=f"ratio of rooflines times {factor:.2f}, as {known.calls} calls of other runs",
            outside="" if reached else f"no other run has {task.kind} of such sizes",
            notes=found.notes,
        )


def reference_runs(pairs: Sequence[tuple[Trace, Trace]]) -> ReferenceRuns:
    """Learn from pairs of traces, each of one model on two devices; both directions.

    Raises:
        OriginDeviceError: it is not known on which device one was recorded.
        PredictionError: both of a pair are of one device, or have no operation in common.
    """
    found: dict[tuple[str, str], defaultdict[Kind, list[tuple[float, float]]]] = {}
    for pair in pairs:
        devices = [origin_of(trace) for trace in pair]
        if devices[0].name == devices[1].name:
            raise PredictionError(
                "a pair of reference runs is of one device", why=f"both were recorded on {devices[0].name}",
                fix="give the same model's runs on two devices: --reference here.json.gz,there.json.gz",
            )  # fmt: skip
        calls = [calls_by_operation(trace) for trace in pair]
        if not calls[0].keys() & calls[1].keys():
            raise PredictionError(
                "a pair of reference runs has no operation in common",
                where=", ".join(trace.source for trace in pair),
                why="operators, shapes and types are compared",
                fix="give one model's runs with the same inputs, recorded with record_shapes=True",
            )
        for here, there in ((0, 1), (1, 0)):
            question = Question(origin=devices[here], destination=devices[there])
            samples = found.setdefault((devices[here].name, devices[there].name), defaultdict(list))
            _add(samples, calls[here], calls[there], question)
    return ReferenceRuns(
        corrections={
            devices: {
                kind: _correction(points)
                for kind, seen in kinds.items()
                if len(points := _repeated(seen)) >= LEAST_CALLS
            }
            for devices, kinds in found.items()
        }
    )


def calls_by_operation(trace: Trace) -> dict[str, list[list[DeviceTask]]]:
    """Text of an operation -> the kernels of each call of it, of those whose launches are known."""
    calls: defaultdict[int, list[DeviceTask]] = defaultdict(list)
    for task in device_tasks(build(trace), trace):
        if task.call >= 0 and task.operation is not None and task.duration_us > 0:
            calls[task.call].append(task)
    found: defaultdict[str, list[list[DeviceTask]]] = defaultdict(list)
    for call in calls.values():
        operation = call[0].operation
        if operation is not None:
            found[operation_text(operation)].append(call)
    return dict(found)


def _add(
    samples: defaultdict[Kind, list[tuple[float, float]]],
    here: Mapping[str, list[list[DeviceTask]]],
    there: Mapping[str, list[list[DeviceTask]]],
    question: Question,
) -> None:
    for operation in here.keys() & there.keys():
        seen_us = float(np.median([sum(one.duration_us for one in call) for call in there[operation]]))
        for call in here[operation][: len(there[operation])]:
            guesses = [by_roofline(task, question) for task in call]
            work = call[0].work
            if work is None or any(isinstance(one, str) for one in guesses):
                continue
            likely_us = sum(one.duration_us for one in guesses if isinstance(one, Guess))
            if likely_us > 0 and seen_us > 0:
                size = log2(max(work.bytes_moved, 1.0))
                samples[_kind(call[0].kind, work)].append((size, log(seen_us / likely_us)))


def _repeated(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    counts = Counter(round(size) for size, _ in points)
    return [point for point in points if counts[round(point[0])] >= _LEAST_OF_SIZE]


def _correction(points: Sequence[tuple[float, float]]) -> Correction:
    """Through the middle of all sizes that differ by less than a factor of two."""
    size, factor = (np.array(column) for column in zip(*points, strict=True))
    groups = [np.round(size) == group for group in np.unique(np.round(size))]
    sizes = np.array([size[group].mean() for group in groups])
    line = np.array([np.median(factor[group]) for group in groups])
    rest = np.abs(factor - np.interp(size, sizes, line))
    return Correction(
        calls=len(points),
        log2_bytes=sizes,
        log_factor=line,
        within=max(_LEAST_WITHIN, exp(float(np.quantile(rest, 0.9)))),
    )


def _kind(kind: KernelClass, work: Work) -> Kind:
    return kind, work.arithmetic if kind in PRODUCTS else ""


def _limits(found: Guess) -> tuple[float, float]:
    return found.duration_us / found.low_us, found.high_us / found.duration_us
