"""How long steps of programs take on this machine: as measured, else by their costs beside measured ones.

The costs of a step (`tuning/step_features.py`) and the speeds of the machine give a first figure. What
steps with similar costs took against that figure corrects it, and how much they disagree is its uncertainty.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import exp, hypot, inf, log, sqrt

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from daceml.tuning.machine_speeds import Machine
from daceml.tuning.step_features import COMPUTED, StepFacts, composition, shares_us

# standard deviations of logarithms
_KERNEL_AGAIN = 0.12  # of a loop that this model was measured with: other programs leave other caches to it
_CALL_AGAIN = 0.05  # of a call of a library
_ELSEWHERE = 0.25  # of either, measured with another model
_ALONE = 0.6  # of a step like none that was measured
_TRIED = 0.1  # of a call that was run alone: elsewhere it finds its arrays in other caches
_TRIED_PRIOR = 0.3  # what it weighs that calls take alone what they take in a program, in calls
_TRIED_NEAR = 1.0  # logarithm of a ratio of times, over which another call counts less by a factor of e
_ANOTHER_HOUR = 0.15  # of all that was not measured with this model: machines have slow hours, and fast ones
_LEAST = 0.14  # of one with measured neighbours, however well these agree
_FEW = 0.5  # what is added where no neighbor is near, the less the more there are
_OWN = 10.0  # as many others a step of the narrower class counts
_NEAR = 0.15  # shares of the work that differ, over which a neighbour counts less by a factor of e
_SIZE = 0.05  # how many of those a factor of e between sizes is: what is larger is a neighbour still
_ALIKE, _OWN_ALIKE = 10.0, 300.0  # as many others a step counts that computes the same wherever it finds it
_ALIKE_NEAR, _ALIKE_APART = 0.1, 0.5  # over which that decreases: in what is computed, and in all
_FAR = 0.1  # what the model itself weighs, in neighbours at no distance
_PRIOR = 0.2  # what it weighs that a factor is the usual one, in measured steps
_OUTLYING = 0.5  # beyond which a step counts less: something disturbed it
_SHORT_US = 20.0  # of steps that take less, errors matter less
_LEAST_US = 0.05
_NOTHING = 1e-9
_NINE_OF_TEN = 1.645  # standard deviations
_USUAL, _USUAL_WEIGHT = 0.04, 4  # of programs whose steps are all known, and as many programs this counts

# Of the kinds of work in `shares_us`, where little of a kind was measured: as the steps that
# `exploration/microbenchmarks.py` measures have them (EPYC, vectors of 512 bits, one thread, 306 loops,
# 161 calls)
# Measured once, while other programs used the machine.
_USUAL_FACTORS = {
    "kernel": (2.9, 0.9, 0.55, 0.45, 0.5, 0.2, 0.35, 0.6),
    "aten": (10.0, 3.0, 0.95, 1.8),
}


@dataclass(frozen=True, kw_only=True)
class Likely:
    """A time, and the standard deviation of its logarithm."""

    us: float
    sigma: float


@dataclass(frozen=True, kw_only=True)
class ProgramTime:
    """What a program is predicted to take.

    Attributes:
        low_us, high_us: hold nine of ten programs.
        measured_share: of the time, how much steps take that were measured before.
    """

    us: float
    low_us: float
    high_us: float
    measured_share: float


@dataclass(frozen=True, kw_only=True)
class TimeRatio:
    """Time of a program over that of another one; low and high hold nine of ten such ratios."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class _Summed:
    """Time of some steps together.

    Attributes:
        known_us: of those that were measured.
        apart: microseconds down and up, of errors that are independent of each other.
    """

    us: float
    known_us: float
    apart: tuple[tuple[float, float], ...]


@dataclass
class _Class:
    """Measured steps of one kind, each once.

    Each kind of work in a step takes what the speeds of the machine say, times a factor that fits what was
    measured; where little was, factors stay near those of all steps of the kind, or near one. What measured
    neighbours are off that is taken over in part.

    Args:
        of_all: a wider class; None where this is the widest.
    """

    machine: Machine
    of_all: _Class | None = None
    steps: dict[str, StepFacts] = field(default_factory=dict[str, StepFacts])
    us: dict[str, float] = field(default_factory=dict[str, float])
    changes: int = 0
    _fitted: _Fitted | None = None
    _fitted_at: tuple[int, ...] = ()

    def put(self, step: StepFacts, us: float) -> None:
        """One step that took so long."""
        self.steps[step.key], self.us[step.key] = step, us
        self.changes += 1

    @property
    def state(self) -> tuple[int, ...]:
        """Another one whenever this class or a wider one has learned something."""
        return (self.changes, *(() if self.of_all is None else self.of_all.state))

    def likely(self, step: StepFacts) -> Likely:
        """A step that was not measured."""
        return self.fitted().likely(shares_us(self.machine, step), composition(self.machine, step))

    def fitted(self) -> _Fitted:
        """What all of them say."""
        if self._fitted is None or self._fitted_at != self.state:
            self._fitted, self._fitted_at = self._fit(), self.state
        return self._fitted

    def _fit(self) -> _Fitted:
        took = np.array([self.us[key] for key in self.steps])
        shares = np.array([shares_us(self.machine, step) for step in self.steps.values()])
        if self.of_all is None:
            usual = np.log(_usual_factors(next(iter(self.steps.values())).kind, shares.shape[1]))
        else:
            usual = np.log(self.of_all.fitted().factors)
        weights = np.sqrt(_weights(took, _combined(shares, np.exp(usual))))

        def off(factors: NDArray[np.float64]) -> NDArray[np.float64]:
            return np.log(took / _combined(shares, np.exp(factors)))

        def apart(factors: NDArray[np.float64]) -> NDArray[np.float64]:
            return np.concatenate([weights * off(factors), sqrt(_PRIOR) * (factors - usual)])

        found = least_squares(apart, usual, loss="soft_l1", f_scale=_OUTLYING)
        return self._seen_with(np.exp(found.x))

    def _seen_with(self, factors: NDArray[np.float64]) -> _Fitted:
        """What measured steps are off by these factors: its own, and those of the wider class."""
        known = self.us if self.of_all is None else {**self.of_all.us, **self.us}
        steps = self.steps if self.of_all is None else {**self.of_all.steps, **self.steps}
        took = np.array([known[key] for key in steps])
        shares = np.array([shares_us(self.machine, step) for step in steps.values()])
        modelled = _combined(shares, factors)
        narrow = np.array([key in self.steps for key in steps])
        certainties = _weights(took, modelled)
        return _Fitted(
            factors=factors,
            work=np.array([composition(self.machine, step) for step in steps.values()]),
            sizes=np.log(modelled),
            off=np.log(took / modelled),
            weights=np.where(narrow, _OWN, 1.0) * certainties,
            certainties=certainties,
            narrow=narrow,
        )


def _usual_factors(kind: str, count: int) -> NDArray[np.float64]:
    return np.array(_USUAL_FACTORS.get(kind, (1.0,) * count))


def _weights(took: NDArray[np.float64], modelled: NDArray[np.float64]) -> NDArray[np.float64]:
    """How much steps say, from 0 to 1: where there is little to do, something else takes the time."""
    least = np.minimum(took, modelled)
    return least / (least + _SHORT_US)


def _combined(shares: NDArray[np.float64], factors: NDArray[np.float64]) -> NDArray[np.float64]:
    """Microseconds of steps, as `modelled_us` combines them."""
    times = shares * factors
    us = times[..., 0] + np.hypot(times[..., 1], times[..., 2:].sum(axis=-1))
    return np.maximum(us, _LEAST_US)


def _apart(work: NDArray[np.float64], sizes: NDArray[np.float64]) -> NDArray[np.float64]:
    """How far steps are from another one: by what their work consists of, and a little by its size.

    Args:
        work: differences of shares, [steps, kinds of work]; sizes: of logarithms of times, [steps].
    """
    return np.abs(work).sum(axis=1) + _SIZE * np.abs(sizes)


def _computed(work: NDArray[np.float64]) -> NDArray[np.float64]:
    """Shares of what is computed alone: the same for loops over more or fewer elements, wherever they lie."""
    found = work[..., COMPUTED:]
    return found / np.maximum(found.sum(axis=-1, keepdims=True), _NOTHING)


@dataclass(frozen=True, kw_only=True)
class _Fitted:
    """What measured steps say of others.

    Attributes:
        factors: of the kinds of work.
        work: what the measured steps consist of, [steps, kinds of work].
        sizes: logarithms of what they would take by the factors alone.
        off: logarithms by which these were off.
        weights: of the measured steps: short ones say little.
        certainties: the same from 0 to 1, whatever class a step is of.
        narrow: whether they are of the narrower class, which says more.
    """

    factors: NDArray[np.float64]
    work: NDArray[np.float64]
    sizes: NDArray[np.float64]
    off: NDArray[np.float64]
    weights: NDArray[np.float64]
    certainties: NDArray[np.float64]
    narrow: NDArray[np.bool_]

    def likely(self, shares: Sequence[float], work: Sequence[float]) -> Likely:
        us = float(_combined(np.array(shares), self.factors))
        apart = _apart(self.work - np.array(work), self.sizes - log(us))
        computed = np.abs(_computed(self.work) - _computed(np.array(work))).sum(axis=1)
        alike = np.where(self.narrow, _OWN_ALIKE, _ALIKE) * np.exp(
            -computed / _ALIKE_NEAR - apart / _ALIKE_APART
        )
        weights = self.weights * (np.exp(-apart / _NEAR) + alike)
        total = float(weights.sum()) + _FAR
        off = float(weights @ self.off) / total
        scattered = float(self.weights @ self.off**2 + _PRIOR * _ALONE**2) / (self.weights.sum() + _PRIOR)
        around = (float(weights @ (self.off - off) ** 2) + _FAR * scattered) / total
        # neighbors that agree say little where they are few, or short
        few = _FEW / sqrt(1 + float(self.certainties @ np.exp(-apart / _NEAR)))
        return Likely(us=us * exp(off), sigma=min(hypot(max(sqrt(around), _LEAST), few), _ALONE))


_Place = tuple[str, str, tuple[str, ...], bool]
"""Of a class: kind of step, function that it calls and its variety (empty: whatever), whether only
the model's own."""


def _places(step: StepFacts) -> tuple[_Place, ...]:
    """The classes of a step, from the narrowest to the widest."""
    found = [(step.kind, step.function, step.variety, True)]
    while (wider := _wider(found[-1])) is not None:
        found.append(wider)
    return tuple(found)


def _wider(place: _Place) -> _Place | None:
    kind, function, variety, own = place
    if own:
        return kind, function, variety, False
    if variety:
        return kind, function, variety[:-1], False
    return (kind, "", (), False) if function else None


def _of(steps: Sequence[StepFacts], counts: Mapping[str, int]) -> list[StepFacts]:
    """As many steps of each key as given."""
    seen = Counter[str]()
    found: list[StepFacts] = []
    for one in steps:
        seen[one.key] += 1
        if seen[one.key] <= counts.get(one.key, 0):
            found.append(one)
    return found


def _without(steps: Sequence[StepFacts], counts: Mapping[str, int]) -> list[StepFacts]:
    """The steps without as many of each key as given."""
    every = Counter(one.key for one in steps)
    return _of(steps, {key: count - counts.get(key, 0) for key, count in every.items()})


def _reach(likely: Likely) -> tuple[float, float]:
    """Microseconds down and up from a time within which nine of ten lie."""
    factor = exp(_NINE_OF_TEN * likely.sigma)
    return likely.us * (1 - 1 / factor), likely.us * (factor - 1)


@dataclass(frozen=True, kw_only=True)
class _Tried:
    """What a call of a function took that ran alone, and how uncertain that is."""

    function: str
    us: float
    sigma: float


class StepTimes:
    """Learns from steps of programs that have run, and predicts programs."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self._measured: dict[str, float] = {}
        self._own: set[str] = set()
        self._tried: dict[str, _Tried] = {}
        self._classes: dict[_Place, _Class] = {}
        self._off: list[float] = []  # logarithms by which programs were off
        self._unsteady = 0.0

    def __len__(self) -> int:
        return len(self._measured)

    def learn(self, steps: Sequence[StepFacts], took_us: Iterable[float], *, own: bool = True) -> None:
        """Take over what steps took; of several times the least, as whatever disturbs makes a step slower.

        Args:
            own: whether they are of the model whose variants are predicted.
        """
        for step, us in zip(steps, took_us, strict=True):
            if us <= 0:
                continue
            places = _places(step)
            if us < self._measured.get(step.key, inf):
                self._measured[step.key] = us
                for place in places[1:]:
                    self._class(place).put(step, us)
            if own:
                self._own.add(step.key)
                self._class(places[0]).put(step, self._measured[step.key])

    def learn_trial(self, step: StepFacts, us: float, *, sigma: float = 0.0) -> None:
        """Take over what a call takes that ran alone, outside any program, on arrays like those of a step.

        Args:
            sigma: standard deviation of its logarithm, by which the shortest runs differ.
        """
        self._tried[step.key] = _Tried(function=step.function, us=us, sigma=sigma)

    def untried(self, step: StepFacts) -> bool:
        """Whether a step of this model has neither run in a program nor alone."""
        return step.key not in self._own and step.key not in self._tried

    def observe(self, predicted_us: float, took_us: float) -> None:
        """Let intervals know how far a program was from its prediction."""
        self._off.append(log(took_us / predicted_us))

    def distrust(self, sigma: float) -> None:
        """Let intervals know that what was learned was disturbed.

        Args:
            sigma: standard deviation of the logarithm of a program's time that follows from it.
        """
        self._unsteady = sigma

    def step(self, step: StepFacts) -> Likely:
        """One step."""
        if step.key in self._tried and step.key not in self._own:
            return self._as_tried(step)
        if step.key in self._measured:
            return Likely(us=self._measured[step.key], sigma=self._again(step))
        # the model's own steps say more than any number of others: they find their arrays in the same caches
        place = next((place for place in _places(step) if place in self._classes), None)
        if place is None:
            shares = np.array(shares_us(self.machine, step))
            usual = _usual_factors(step.kind, len(shares))
            return Likely(us=float(_combined(shares, usual)), sigma=_ALONE)
        return self._classes[place].likely(step)

    def _as_tried(self, step: StepFacts) -> Likely:
        """A call that ran alone, by what calls of the same function take in a program beside what they took
        alone; those of like size say most.
        """
        us, unsure = self._tried[step.key].us, self._tried[step.key].sigma
        found = [(one, self._measured[key]) for key, one in self._tried.items() if key in self._own]
        pairs = [(one.us, took) for one, took in found if one.function == step.function]
        alone_us, took_us = np.array(pairs).reshape(-1, 2).T
        weights = _weights(took_us, alone_us) * np.exp(-np.abs(np.log(alone_us / us)) / _TRIED_NEAR)
        off = np.log(took_us / alone_us)
        total = float(weights.sum()) + _TRIED_PRIOR
        factor = float(weights @ off) / total
        around = float(weights @ (off - factor) ** 2 + _TRIED_PRIOR * _ELSEWHERE**2) / total
        return Likely(us=us * exp(factor), sigma=hypot(min(max(sqrt(around), _TRIED), _ALONE), unsure))

    def _again(self, step: StepFacts) -> float:
        if step.key not in self._own:
            return _ELSEWHERE
        return _KERNEL_AGAIN if step.kind == "kernel" else _CALL_AGAIN

    def _class(self, place: _Place) -> _Class:
        if place not in self._classes:
            wider = _wider(place)
            self._classes[place] = _Class(self.machine, None if wider is None else self._class(wider))
        return self._classes[place]

    def program(self, steps: Sequence[StepFacts], around_us: float) -> ProgramTime:
        """All steps of a program, and what stands around them.

        Steps of one kind that nobody has measured are off in the same direction; others are not, but for the
        hour in which they were measured. A step may take three times as long, but never less than nothing:
        intervals reach further up than down.
        """
        summed = self._summed(steps)
        total, known, apart = around_us + summed.us, around_us + summed.known_us, list(summed.apart)
        total = max(total, 1e-3)
        apart.append(_reach(Likely(us=total, sigma=self._program_sigma())))
        down, up = (hypot(*side) for side in zip(*apart, strict=True))
        return ProgramTime(
            us=total,
            low_us=max(total - down, total**2 / (total + up)),
            high_us=total + up,
            measured_share=known / total,
        )

    def ratio(
        self,
        steps: Sequence[StepFacts],
        over: Sequence[StepFacts],
        *,
        around_us: float,
        over_around_us: float,
    ) -> TimeRatio:
        """Time of a program over that of another one, such as the same program without a pass.

        Steps of both programs cancel: the interval follows from the steps that only one of them has.

        Args:
            around_us, over_around_us: of each program, time in no step.
        """
        shared = Counter(one.key for one in steps) & Counter(one.key for one in over)
        ours, theirs = (self._summed(_without(some, shared)) for some in (steps, over))
        both_us = self._summed(_of(steps, shared)).us
        us = max(both_us + ours.us + around_us, _LEAST_US)
        over_us = max(both_us + theirs.us + over_around_us, _LEAST_US)
        sigma = self._program_sigma()
        (down, up), (over_down, over_up) = (
            tuple(
                hypot(*side) for side in zip(*one.apart, _reach(Likely(us=one.us, sigma=sigma)), strict=True)
            )
            for one in (ours, theirs)
        )
        value = us / over_us
        higher = hypot(up / over_us, us / max(over_us - over_down, _LEAST_US) - value)
        lower = hypot(down / over_us, value - us / (over_us + over_up))
        return TimeRatio(
            value=value, low=max(value - lower, value**2 / (value + higher)), high=value + higher
        )

    def _summed(self, steps: Sequence[StepFacts]) -> _Summed:
        """Steps of a program. Steps of one kind that were never measured are off in the same direction."""
        total, known, earlier = 0.0, 0.0, 0.0
        apart: list[tuple[float, float]] = []
        together: dict[tuple[str, str], tuple[float, float]] = {}
        for one in steps:
            likely = self.step(one)
            total += likely.us
            if self.untried(one):
                earlier += likely.us
            if one.key in self._measured and (one.key in self._own or one.key not in self._tried):
                known += likely.us
                apart.append(_reach(likely))
            else:
                place = (one.kind, one.function)
                (down, up), (further_down, further_up) = together.get(place, (0.0, 0.0)), _reach(likely)
                together[place] = down + further_down, up + further_up
        apart += together.values()
        apart.append(_reach(Likely(us=earlier, sigma=_ANOTHER_HOUR)))
        return _Summed(us=total, known_us=known, apart=tuple(apart))

    def _program_sigma(self) -> float:
        """Of programs whose steps are all known: what is usual, what was seen, and what disturbed that."""
        squares = _USUAL_WEIGHT * _USUAL**2 + sum(off**2 for off in self._off)
        return hypot(sqrt(squares / (_USUAL_WEIGHT + len(self._off))), self._unsteady)
