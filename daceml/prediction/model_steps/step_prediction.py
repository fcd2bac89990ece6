"""A step of a model on a device that nobody needs to have: how long, how sure, what it is made of."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from daceml.devices.specification import Device
from daceml.operations.duration_chain import DurationLadder
from daceml.operations.work.operator_class import operator_class
from daceml.prediction.model_step import ModelStep, Precision
from daceml.prediction.model_steps.data_parallel_step import data_parallel, with_devices
from daceml.prediction.model_steps.host_cost import HostCost
from daceml.prediction.model_steps.memory_need import MemoryNeed, memory_need
from daceml.prediction.model_steps.step_durations import StepDurations, step_durations
from daceml.prediction.model_steps.step_graph import step_graph
from daceml.simulation.analysis.guards import Answer, check_answer, remaining_work_us
from daceml.simulation.analysis.steps import StepScale, step_times
from daceml.simulation.engine import Schedule, simulate
from daceml.simulation.graph import Floats, TaskGraph
from daceml.simulation.network.links import Link
from daceml.simulation.network.measured import MeasuredCollective
from daceml.simulation.whatif.data_parallel import DataParallel
from daceml.simulation.whatif.optimization import Estimate, Side

# Sources whose limits are closer than this share of all limits are not simulated one by one, but as one.
_SMALL = 0.02
_OTHERS = "others"


@dataclass(frozen=True, kw_only=True)
class StepPrediction:
    """A step on one kind of device.

    Attributes:
        devices: that train data-parallel, each with a batch of its own.
        samples: of one step on all devices; None where inputs do not tell.
        step_us: in the long run; nine in ten are between low_us and high_us.
        errors_us: by source of error, how far it alone moves the step: (down, up). Sources are taken to be
            independent of each other, and all that shares one to err together.
        device_us: what the operations take, added up; host_us: what the host takes.
        communication_us: by how much several devices make the step longer: what is exposed of the
            all-reduces, and what they take from kernels.
        by_class_us, by_layer_us, by_phase_us: of `device_us`.
        by_basis: share of `device_us` by who says it: measured, learned, scaled, roofline.
        memory: None where it is not known.
        flags: what is outside of what is known, a sentence each.
        notes: what is taken for granted.
    """

    model: str
    device: Device
    devices: int
    precision: Precision
    trains: bool
    samples: int | None
    step_us: float
    low_us: float
    high_us: float
    errors_us: dict[str, tuple[float, float]]
    device_us: float
    host_us: float
    communication_us: float
    by_class_us: dict[str, float]
    by_layer_us: dict[str, float]
    by_phase_us: dict[str, float]
    by_basis: dict[str, float]
    memory: MemoryNeed | None
    flags: tuple[str, ...]
    notes: tuple[str, ...]
    schedule: Schedule

    @property
    def samples_per_s(self) -> float | None:
        """Throughput of all devices."""
        return None if self.samples is None else self.samples / self.step_us * 1e6

    def samples_per_usd(self, usd_per_hour: float) -> float | None:
        """Samples for a dollar, at the price of one device for an hour."""
        rate = self.samples_per_s
        return None if rate is None else rate * 3600 / (usd_per_hour * self.devices)


def predict_captured(
    step: ModelStep,
    device: Device,
    *,
    devices: int = 1,
    precision: Precision = "fp32",
    ladder: DurationLadder | None = None,
    host: HostCost | None = None,
    link: Link | None = None,
    measured: MeasuredCollective | None = None,
    interference: Estimate | None = None,
    context_bytes: int | None = None,
) -> StepPrediction:
    """Predict a step whose operations are known.

    Args:
        ladder: who knows durations; None takes rooflines alone.
        host: what launches cost.
        link, measured, interference: as `data_parallel` takes them.
        context_bytes: of the device's memory, as `memory_need` takes it.
    Raises:
        DeviceError: a rate of the device is not known that some operation needs.
        StepPredictionError: a number of devices whose links are not known.
        ImplausibleAnswerError: the answer breaks a law of every step.
    """
    host = host or HostCost()
    durations = step_durations(step, device, ladder or DurationLadder(), precision=precision)
    sending = data_parallel(step, device, devices, link=link, measured=measured, interference=interference)
    run = _Run(step, durations, host, sending)
    schedule = run.schedule()
    step_us = step_times(schedule).step_us
    errors_us = _errors(run, step_us)
    alone_us = step_us if sending is None else run.alone().step_us()
    memory = None
    if step.memory is not None:
        together = devices if sending else 1
        memory = memory_need(step.memory, device, together, step=step, context_bytes=context_bytes)
    likely_us = durations.likely_us
    operators = [one.operation.operator for one in step.operations]
    notes = [*step.notes, *durations.notes, host.note]
    if sending is not None:
        notes += sending.assumptions(run.graph())
    found = StepPrediction(
        model=step.name,
        device=device,
        devices=devices,
        precision=precision,
        trains=step.trains,
        samples=None if step.samples is None else step.samples * devices,
        step_us=step_us,
        low_us=max(step_us - math.hypot(*(down for down, _ in errors_us.values())), 0.0),
        high_us=step_us + math.hypot(*(up for _, up in errors_us.values())),
        errors_us=errors_us,
        device_us=float(likely_us.sum()),
        host_us=run.host_us(),
        communication_us=max(step_us - alone_us, 0.0),
        by_class_us=_sums([operator_class(name) for name in operators], likely_us),
        by_layer_us=_sums([one.layer for one in step.operations], likely_us),
        by_phase_us=_sums([one.phase for one in step.operations], likely_us),
        by_basis=_shares([one.basis for one in durations.estimates], likely_us),
        memory=memory,
        flags=tuple(_flags(durations, run.host_us(), memory)),
        notes=tuple(dict.fromkeys(notes)),
        schedule=schedule,
    )
    check_answer(
        Answer(
            title=f"{found.model} on {device.name}",
            step_us=step_us,
            low_us=found.low_us,
            high_us=found.high_us,
            least_us=StepScale.of(schedule).per_step_us(remaining_work_us(schedule.graph)),
            devices=devices,
            one_device_us=None if sending is None else alone_us,
        ),
        where=found.model,
    )
    return found


class _Run:
    """One step with some of its figures at a limit."""

    def __init__(
        self, step: ModelStep, durations: StepDurations, host: HostCost, sending: DataParallel | None
    ) -> None:
        self.step, self.durations, self.host, self.sending = step, durations, host, sending

    def alone(self) -> _Run:
        """On a single device."""
        return _Run(self.step, self.durations, self.host, None)

    def graph(self, kernel_us: Floats | None = None, side: Side = "likely") -> TaskGraph:
        """On one device."""
        kernel_us = self.durations.likely_us if kernel_us is None else kernel_us
        return step_graph(self.step, kernel_us, host=self.host, side=side)

    def schedule(
        self, kernel_us: Floats | None = None, *, host: Side = "likely", network: Side = "likely"
    ) -> Schedule:
        """On all devices."""
        sending = None if self.sending is None else self.sending.at(network)
        return simulate(with_devices(self.graph(kernel_us, host), sending))

    def step_us(
        self, kernel_us: Floats | None = None, *, host: Side = "likely", network: Side = "likely"
    ) -> float:
        """What a step takes in the long run."""
        return step_times(self.schedule(kernel_us, host=host, network=network)).step_us

    def host_us(self) -> float:
        """What a step takes the host."""
        graph = self.graph()
        own = ~graph.on_device() & (graph.tasks.step == 0)
        return float((graph.tasks.duration_us + graph.tasks.gap_us)[own].sum())


def _errors(run: _Run, step_us: float) -> dict[str, tuple[float, float]]:
    """How far each source of error moves the step, while none of the others errs."""
    durations = run.durations.with_small_sources_joined(_SMALL, _OTHERS)
    found: dict[str, tuple[float, float]] = {}

    def moved(name: str, fast_us: float, slow_us: float) -> None:
        found[name] = (max(step_us - fast_us, 0.0), max(slow_us - step_us, 0.0))

    for name in dict.fromkeys(filter(None, durations.sources)):
        low, high = (run.step_us(durations.at(name, high=high)) for high in (False, True))
        moved(name, low, high)
    moved("the host", run.step_us(host="fast"), run.step_us(host="slow"))
    if run.sending is not None:
        moved("the network", run.step_us(network="fast"), run.step_us(network="slow"))
    return found


def _flags(durations: StepDurations, host_us: float, memory: MemoryNeed | None) -> Iterator[str]:
    likely_us = durations.likely_us
    total_us = max(float(likely_us.sum()), 1e-9)
    outside: dict[str, float] = {}
    for one, us in zip(durations.estimates, likely_us.tolist(), strict=True):
        if one.outside:
            outside[one.outside] = outside.get(one.outside, 0.0) + us
    for why, us in outside.items():
        yield f"{why} ({us / total_us:.1%} of the time)"
    if memory is not None and memory.fits is False and memory.available is not None:
        yield f"does not fit: it needs {memory.total / 1e9:.1f} GB of {memory.available / 1e9:.1f} GB"
    if host_us > total_us:
        yield (
            f"the host is the limit: {host_us / 1e3:.3g} ms of launches for {total_us / 1e3:.3g} ms of work,"
            " and the host was not measured"
        )
    if memory is None:
        yield "the memory that it needs is unknown"


def _sums(names: Sequence[str], us: Floats) -> dict[str, float]:
    """By name, the largest first."""
    found: dict[str, float] = {}
    for name, value in zip(names, us.tolist(), strict=True):
        if value > 0:
            found[name] = found.get(name, 0.0) + value
    return dict(sorted(found.items(), key=lambda row: -row[1]))


def _shares(names: Sequence[str], us: Floats) -> dict[str, float]:
    total = float(us.sum())
    return {name: value / total for name, value in _sums(names, us).items()}
