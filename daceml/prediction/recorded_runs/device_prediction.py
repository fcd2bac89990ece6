"""What is said of a step on a device that did not run it: how long, of what, for how much, and how sure."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real

from daceml.devices.specification import Device
from daceml.errors import PredictionError
from daceml.prediction.prices import Price
from daceml.prediction.recorded_runs.retimed_tasks import ClassTime, RetimedTask
from daceml.simulation.analysis.reliability import HostLimit
from daceml.simulation.engine import Schedule


@dataclass(frozen=True, kw_only=True)
class DevicePrediction:
    """A step on a device that did not run it.

    Attributes:
        origin: None where it is not described, as of most processors.
        recorded_us: what a step took there, without the profiler where that is known.
        step_us: what it takes on the destination, in the long run.
        fast_us, slow_us: the same with all kernels at their limits, widened by the error of the replay. Where
            the host limits the step, from what the device needs to what the host took as it was recorded.
        host: None where it does not limit the step.
        number_format: in which the device computes, where that was asked; "" as it was recorded.
        busy_us: of the device in a step, all kernels one after another.
        classes: kinds of kernels, per step; tasks: each of them, in all steps.
        batch: samples in a step on the destination; None where nobody said how many.
        schedule: the replay; None of a run without a device, whose operators are added up.
        replay_error: of the run as it was recorded, a share.
        assumptions: what the answer takes for granted.
    """

    origin: Device | None
    destination: Device
    recorded_us: float
    step_us: float
    fast_us: float
    slow_us: float
    classes: tuple[ClassTime, ...]
    tasks: tuple[RetimedTask, ...]
    batch: float | None = None
    schedule: Schedule | None = None
    replay_error: float = 0.0
    host: HostLimit | None = None
    number_format: str = ""
    assumptions: tuple[str, ...] = ()

    @property
    def run_time_ms(self) -> float:
        return self.step_us / 1e3

    @property
    def run_time_low_ms(self) -> float:
        return self.fast_us / 1e3

    @property
    def run_time_high_ms(self) -> float:
        return self.slow_us / 1e3

    @property
    def busy_us(self) -> float:
        return sum(one.duration_us for one in self.classes)

    @property
    def flags(self) -> tuple[str, ...]:
        """Why to be careful, with the share of the busy time that it concerns."""
        total = sum(one.duration_us for one in self.tasks) or 1.0
        outside: dict[str, float] = {}
        for one in self.tasks:
            if one.outside:
                outside[one.outside] = outside.get(one.outside, 0.0) + one.duration_us
        return tuple(f"{share / total:.0%} of the kernels' time: {why}" for why, share in outside.items())

    def throughput(self, batch: float | None = None) -> float:
        """Samples a second.

        Args:
            batch: samples in a step; None is that of the prediction.
        Raises:
            PredictionError: the number of samples of a step is not given, or it is no number above 0.
        """
        samples = self.batch if batch is None else batch
        if samples is None:
            raise PredictionError(
                "samples a second are not known", why="the number of samples of a step is not given",
                fix="say it: --batch-recorded N, or throughput(batch=N)",
            )  # fmt: skip
        _check_samples(samples)
        return samples / (self.step_us / 1e6) if self.step_us > 0 else float("inf")

    def cost(self, price: Price, *, samples: float, batch: float | None = None) -> float:
        """US dollars for so many samples.

        Raises:
            PredictionError: the number of samples of a step is not given, or a number of them is not above 0.
        """
        _check_samples(samples)
        return price.usd(samples / self.throughput(batch))


def _check_samples(samples: float) -> None:
    if not (isinstance(samples, Real) and 0 < samples < float("inf")):
        raise PredictionError(f"{samples!r} is not a number of samples", fix="give a number above 0")
