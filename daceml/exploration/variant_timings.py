"""Programs of a model's variants: lowered and predicted, or compiled and measured beside the standard one."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from math import log as logarithm
from typing import TYPE_CHECKING

import torch

from daceml.compiler.verification.value_difference import largest_difference
from daceml.errors import ExplorationError, ResultsDifferError
from daceml.exploration.eager_baseline import EagerRun
from daceml.exploration.results import Times, disturbance
from daceml.exploration.step_database import Library
from daceml.runtime.progress import publish
from daceml.runtime.timing.available_memory import available_bytes
from daceml.runtime.timing.comparison import FEWEST_ROUNDS, Comparison, Run, compare
from daceml.tuning.call_batch import shared_samples
from daceml.tuning.call_trials import CallTrials
from daceml.tuning.program_run import unhooked
from daceml.tuning.step_times import TimeRatio
from daceml.tuning.variant import Variant

if TYPE_CHECKING:
    from daceml.tuning.model_call import Lowered, Subject
    from daceml.tuning.program_run import ProgramRun
    from daceml.tuning.step_times import ProgramTime, StepTimes

log = logging.getLogger(__name__)

_KNOWN_SHARE = 0.8
_DISTURBING = (
    0.5  # of the logarithm by which a usual call takes longer than the quickest: how unsure ratios are
)
# At least, where threads wait for one whose core others have: the quickest of some calls is disturbed, too
_WAITING = 0.3
_ENTERING_US = 50.0  # of a call, however small it is
_LOST = 1.0  # of a result's size: nothing is left of it
_PAUSE_S = 1.0  # before a measurement that other programs disturbed is repeated
_STANDARD, _CANDIDATE = "standard", "candidate"
_EAGER_CALLS = 2 * FEWEST_ROUNDS  # at least: in each round one that warms up and one that counts
_EAGER_COPIES = 2  # times the memory of the standard variant: what PyTorch needs is not known


@dataclass(kw_only=True)
class Programs:
    """What is known of a subject's variants.

    The standard variant is always measured: all times are told beside its own, since a machine slows down and
    recovers between two measurements.

    Args:
        limit_s: of one measurement.
        seed: of orders.
        patience_s: what all repetitions of disturbed measurements may take together; 0 repeats none.
    Attributes:
        standard_ms: what the standard variant took.
        first: what was predicted of it before anything was measured.
        around_us: of a call, what is in no step.
        profiles: of what was measured: microseconds of each step, where the standard variant takes what it
            took.
        slowness: how many times as long as in its best hour this machine takes today, where most steps of the
            standard variant are known from an earlier hour; what is learned is divided by it.
        foreign_share: of the machine, the most that others used beside one of the measurements, where that
            left too few cores in most rounds; else 0. Where either says that something else runs here this is
            logged, and nothing is kept from then on.
        shares: of the machine, that others used beside the measurement of each variant; 0 where they left
            enough cores.
    """

    subject: Subject
    library: Library
    times: StepTimes
    limit_s: float
    seed: int = 0
    patience_s: float = 0.0
    standard_ms: float = 0.0
    around_us: float = 0.0
    slowness: float = 1.0
    foreign_share: float = 0.0
    profiles: dict[Variant, tuple[float, ...]] = field(default_factory=dict["Variant", tuple[float, ...]])
    shares: dict[Variant, float] = field(default_factory=dict["Variant", float])
    _warned: bool = False
    _trials: CallTrials = field(init=False)
    _pace: float = 1.0  # of the standard variant in the rounds that count, over its least time
    _lowered: dict[Variant, Lowered] = field(default_factory=dict["Variant", "Lowered"])
    _measured: dict[Variant, Times] = field(default_factory=dict[Variant, Times])
    _failed: dict[Variant, Exception] = field(default_factory=dict[Variant, Exception])

    def __post_init__(self) -> None:
        self._trials = CallTrials(times=self.times)

    @classmethod
    @contextmanager
    def measured(
        cls, subject: Subject, *, limit_s: float, seed: int = 0, course: bool = False, patience_s: float = 0.0
    ) -> Generator[Programs]:
        """With the standard variant measured, and with what was learned of this machine before.

        Args:
            patience_s: seconds for all repetitions of measurements that other programs disturbed.
            course: whether usual operators are measured first, those that were not yet.
        Raises:
            DacemlError: the standard variant cannot be compiled.
        """
        with torch.random.fork_rng(devices=()), Library.of_this_machine() as library:
            with unhooked():
                torch.default_generator.manual_seed(seed)
                standard = subject.lower(Variant())
                if course:
                    library.measure_course(standard.facts)
                made = cls(
                    subject=subject, library=library, times=library.times(), limit_s=limit_s, seed=seed,
                    patience_s=patience_s,
                )  # fmt: skip
                made._begin(standard)
            yield made

    @property
    def disturbance(self) -> str:
        """What says that others run beside the measurements; "" where nothing does."""
        return disturbance(self.slowness, self.foreign_share)

    def lowered(self, variant: Variant) -> Lowered:
        """The variant's programs, of which only the facts are kept.

        Raises:
            Exception: whatever a pass or an operator refuses; the message says why.
        """
        if variant not in self._lowered:
            found = self.subject.lower(variant)
            self._trials.learn(found, pace=self._pace / self.slowness)
            found.making.made, found.plans = [], ()  # networks are large; what is measured is lowered again
            self._lowered[variant] = found
        return self._lowered[variant]

    def predicted(self, variant: Variant) -> ProgramTime:
        """On the scale on which the standard variant takes what it was measured to take, for as many samples.

        Raises:
            Exception: see `lowered`.
        """
        lowered, standard = self.lowered(variant), self.lowered(Variant())
        found = self.times.program(lowered.facts, self._around_us(lowered))
        known = self.times.program(standard.facts, self.around_us)
        scale = self.standard_ms * 1e3 / known.us * lowered.calls
        return replace(found, us=found.us * scale, low_us=found.low_us * scale, high_us=found.high_us * scale)

    def ratio(self, variant: Variant, over: Variant) -> TimeRatio:
        """The predicted time of a variant over that of another one: steps that both have cancel.

        Raises:
            Exception: see `lowered`.
        """
        ours, theirs = self.lowered(variant), self.lowered(over)
        calls = ours.calls / theirs.calls
        found = self.times.ratio(
            ours.facts, theirs.facts,
            around_us=self._around_us(ours), over_around_us=self._around_us(theirs),
        )  # fmt: skip
        return TimeRatio(value=found.value * calls, low=found.low * calls, high=found.high * calls)

    def busy(self, *variants: Variant) -> str:
        """What others used of the machine beside the measurement of one of them; "" where they did not."""
        return disturbance(1.0, max(self.shares.get(one, 0.0) for one in variants))

    def measure(self, variant: Variant) -> Times:
        """Beside the standard variant, once, and for as many samples.

        Raises:
            ResultsDifferError: it computes something else.
            Exception: a pass, an operator or the compiler refuses.
        """
        if variant in self._failed:
            raise self._failed[variant]
        if variant not in self._measured:
            try:
                with unhooked():
                    self._measured[variant] = self._measure(variant)
            except Exception as error:
                self._failed[variant] = error
                raise
        return self._measured[variant]

    def beside(self, variant: Variant, other: Variant) -> Times:
        """A variant beside another one than the standard one, in rounds of their own.

        Raises:
            Exception: a pass, an operator or the compiler refuses one.
        """
        lowered = {_CANDIDATE: self.subject.lower(variant), _STANDARD: self.subject.lower(other)}
        with unhooked():
            runs = {k: self.subject.compile(one) for k, one in lowered.items()}
            seen = compare(runs, limit_s=self.limit_s)
        calls = lowered[_CANDIDATE].calls / lowered[_STANDARD].calls
        return _times(seen, _CANDIDATE, seen.ms(_STANDARD) * lowered[_STANDARD].calls, calls)

    def eager(self, limit_s: float) -> Times | None:
        """A call of the module as PyTorch runs it, beside the standard variant.

        Returns:
            None where that would take longer than the limit, or memory that cannot be had.
        Raises:
            Exception: the module cannot be copied, or fails.
        """
        available = available_bytes()
        if available is not None and _EAGER_COPIES * self.lowered(Variant()).memory_bytes > available:
            return None
        run = EagerRun(self.subject)
        run()  # warms up
        start_s = time.perf_counter()
        run()
        if _EAGER_CALLS * (time.perf_counter() - start_s + self.standard_ms / 1e3) > limit_s:
            return None
        return _times(self._compared({_CANDIDATE: run}, limit_s), _CANDIDATE, self.standard_ms)

    def _around_us(self, lowered: Lowered) -> float:
        """Around the steps of a call: entering it, and memory for as many samples as it has."""
        entering = min(self.around_us, _ENTERING_US)
        return entering + (self.around_us - entering) / lowered.calls

    def _begin(self, lowered: Lowered) -> None:
        self.first = self.times.program(lowered.facts, 0.0)
        plans, lowered.plans = lowered.plans, ()
        self._standard = self.subject.compile(lowered)
        self._lowered[Variant()] = lowered
        seen = self._compared({})  # warms up what the allocator has, too
        self.shares[Variant()] = seen.foreign_share if seen.disturbed else 0.0
        self.standard_ms = seen.ms(_STANDARD)
        self._pace = self.standard_ms * 1e3 / self._standard.call_us()
        unsteady = _DISTURBING * abs(logarithm(self._pace))
        waits = seen.disturbed and torch.get_num_threads() > 1
        self.times.distrust(max(unsteady, _WAITING) if waits else unsteady)
        took_us = self._steps_us(lowered, self._standard, self.standard_ms)
        if self.first.measured_share > _KNOWN_SHARE:
            self.slowness = max(sum(took_us) / self.first.us, 1.0)
            self._warn()
        around_us = min(self.standard_ms * 1e3 - sum(took_us), self._standard.around_us() * self._pace)
        self.around_us = max(around_us, 0.0) / self.slowness
        self._learn(lowered, took_us)
        self._trials.learn(replace(lowered, plans=plans), pace=self._pace / self.slowness, known=True)
        self._measured[Variant()] = _times(seen, _STANDARD, self.standard_ms)

    def _measure(self, variant: Variant) -> Times:
        predicted = self.predicted(variant)
        lowered = self.subject.lower(variant)
        available = available_bytes()
        if available is not None and lowered.memory_bytes > available:
            raise ExplorationError(
                f"{variant.title} is not measured",
                why=f"it has {lowered.memory_bytes:,} bytes at its peak, and {available:,} can be had",
                fix="measure it on a larger machine",
            )
        run = self.subject.compile(lowered)
        differs = self._difference(run, variant)
        if differs:
            raise ResultsDifferError(
                f"{variant.title} computes something else", why=differs, fix="take another variant"
            )
        seen = self._compared({_CANDIDATE: run})
        self.shares[variant] = seen.foreign_share if seen.disturbed else 0.0
        times = _times(seen, _CANDIDATE, self.standard_ms, lowered.calls)
        self.times.observe(predicted.us, times.ms * 1e3)
        self._learn(lowered, self._steps_us(lowered, run, times.ms))
        return times

    def _steps_us(self, lowered: Lowered, run: ProgramRun, ms: float) -> list[float]:
        """Microseconds of each step where a call takes what it took in the rounds that count: steps are timed
        one by one, while others may disturb them more.
        """
        call_us = run.call_us()
        scale = ms * 1e3 / lowered.calls / call_us
        return [us * scale for us in run.steps_us(call_us)]

    def _learn(self, lowered: Lowered, took_us: list[float]) -> None:
        if len(took_us) == len(lowered.facts):
            self.profiles[lowered.variant] = tuple(took_us)
            self.times.learn(lowered.facts, [us / self.slowness for us in took_us])
            if not self.disturbance:
                # as they were measured: of what is kept the least counts, and a guess could be less than all
                self.library.add(lowered.facts, took_us)

    def _difference(self, run: ProgramRun, variant: Variant) -> str:
        """From the standard variant's results, in a sentence; of other samples, those that both have."""
        ours, theirs, limit = run.values, self._standard.values, run.limit
        if variant.samples is not None:
            if self.subject.training:  # gradients are sums, and statistics are of all samples
                return ""
            counts = variant.samples, self.subject.samples
            ours, theirs = shared_samples(ours, theirs, counts)
            if not ours:
                return "no result belongs to single samples"
        if variant.precision:  # rounding is what was asked for; values that are lost are not
            ours, limit = {name: x.to(theirs[name].dtype) for name, x in ours.items()}, _LOST
        moved = None if variant.samples is not None else lambda: self._standard.moved
        found = largest_difference(ours, theirs, limit, moved=moved)
        return "" if found is None else f"{found.array} {found.sentence}"

    def _compared(self, runs: Mapping[str, Run], limit_s: float | None = None) -> Comparison:
        order = [_STANDARD, *runs]
        random.Random(self.seed).shuffle(order)
        named: dict[str, Run] = {_STANDARD: self._standard, **runs}
        limit_s = self.limit_s if limit_s is None else limit_s
        publish("measure")
        seen = compare({name: named[name] for name in order}, limit_s=limit_s)
        while seen.disturbed and self.patience_s > 0:
            start_s = time.perf_counter()
            publish("idle")
            time.sleep(min(_PAUSE_S, self.patience_s))
            publish("again")
            again = compare({name: named[name] for name in order}, limit_s=min(limit_s, self.patience_s))
            seen = min(seen, again, key=lambda one: one.foreign_share)
            self.patience_s -= time.perf_counter() - start_s
        if seen.disturbed:
            self.foreign_share = max(self.foreign_share, seen.foreign_share)
            self._warn()
        return seen

    def _warn(self) -> None:
        """Say once that others run beside the measurements."""
        if self.disturbance and not self._warned:
            self._warned = True
            log.warning("%s: measurements are unreliable", self.disturbance)


def _times(seen: Comparison, name: str, standard_ms: float, calls: float = 1.0) -> Times:
    found = seen.ratio(name, _STANDARD)
    ratio, low, high = found.value * calls, found.low * calls, found.high * calls
    return Times(
        ms=ratio * standard_ms, low_ms=low * standard_ms, high_ms=high * standard_ms,
        ratio=ratio, ratio_low=low, ratio_high=high, rounds=found.n,
    )  # fmt: skip
