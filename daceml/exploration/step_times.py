"""How long steps of programs take on this machine: as measured, else by their costs beside measured ones.

The costs of a step (`frontend/search/prediction.py`) and the speeds of the machine give a first figure. What
steps with similar costs took against that figure corrects it, and how much they disagree is its uncertainty.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import exp, inf, log, sqrt

import numpy as np
from numpy.typing import NDArray

from daceml.frontend.search.machine import Machine
from daceml.frontend.search.prediction import StepFacts, modelled_us

# standard deviations of logarithms
_AGAIN = 0.03  # of a step that was measured: caches and neighbours differ from program to program
_ALONE = 0.6  # of a step like none that was measured
_LEAST = 0.08  # of one with measured neighbours, however well these agree
_APART = 0.25  # and that for each factor of e between a step's costs and those of its neighbours
_NEIGHBOURS = 8
_NEAR = 0.05  # a distance at which a neighbour counts fully


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


@dataclass
class _Class:
    """Measured steps of one kind, each once."""

    costs: dict[str, tuple[float, ...]] = field(default_factory=dict[str, tuple[float, ...]])
    off: dict[str, float] = field(default_factory=dict[str, float])

    def put(self, step: StepFacts, off: float) -> None:
        """One step, by what it is off its model."""
        self.costs[step.key], self.off[step.key] = _costs(step), off

    def likely(self, step: StepFacts) -> tuple[float, float]:
        """The logarithm by which such a step's time is off its model, and its standard deviation."""
        costs: NDArray[np.float64] = np.array(list(self.costs.values()))
        apart = np.abs(costs - np.array(_costs(step))).max(axis=1)
        near = np.argsort(apart, kind="stable")[:_NEIGHBOURS]
        weight = 1.0 / (apart[near] + _NEAR)
        weight /= weight.sum()
        off = np.array(list(self.off.values()))[near]
        mean = float(weight @ off)
        spread = sqrt(float(weight @ (off - mean) ** 2) + (_APART * float(weight @ apart[near])) ** 2)
        return mean, min(max(spread, _LEAST), _ALONE)


class StepTimes:
    """Learns from steps of programs that have run, and predicts programs."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self._measured: dict[str, float] = {}
        self._classes: dict[tuple[str, bool], _Class] = {}
        self._off: list[float] = []  # logarithms by which programs were off

    def __len__(self) -> int:
        return len(self._measured)

    def learn(self, steps: Sequence[StepFacts], took_us: Iterable[float]) -> None:
        """Take over what steps took; of several times the least, as whatever disturbs makes a step slower."""
        for step, us in zip(steps, took_us, strict=True):
            if 0 < us < self._measured.get(step.key, inf):
                self._measured[step.key] = us
                of_kind = self._classes.setdefault((step.kind, step.parallel), _Class())
                of_kind.put(step, log(us / modelled_us(self.machine, step)))

    def observe(self, predicted_us: float, took_us: float) -> None:
        """Let intervals know how far a program was from its prediction."""
        self._off.append(log(took_us / predicted_us))

    def step(self, step: StepFacts) -> Likely:
        """One step."""
        if step.key in self._measured:
            return Likely(us=self._measured[step.key], sigma=_AGAIN)
        modelled = modelled_us(self.machine, step)
        of_kind = self._classes.get((step.kind, step.parallel))
        if of_kind is None:
            return Likely(us=modelled, sigma=_ALONE)
        off, sigma = of_kind.likely(step)
        return Likely(us=modelled * exp(off), sigma=sigma)

    def program(self, steps: Sequence[StepFacts], around_us: float) -> ProgramTime:
        """All steps of a program, and what stands around them.

        Steps of one kind that nobody has measured are off in the same direction; others are not.
        """
        total, known, squares = around_us, around_us, 0.0
        unknown: dict[tuple[str, bool], float] = {}
        for one in steps:
            likely = self.step(one)
            total += likely.us
            if one.key in self._measured:
                known += likely.us
                squares += (likely.us * likely.sigma) ** 2
            else:
                place = (one.kind, one.parallel)
                unknown[place] = unknown.get(place, 0.0) + likely.us * likely.sigma
        squares += sum(part**2 for part in unknown.values())
        total = max(total, 1e-3)
        sigma = sqrt(squares / total**2 + self._program_sigma() ** 2)
        return ProgramTime(
            us=total,
            low_us=total * exp(-_NINE_OF_TEN * sigma),
            high_us=total * exp(_NINE_OF_TEN * sigma),
            measured_share=known / total,
        )

    def _program_sigma(self) -> float:
        """Of programs whose steps are all known: what is usual, and what was seen."""
        squares = _USUAL_WEIGHT * _USUAL**2 + sum(off**2 for off in self._off)
        return sqrt(squares / (_USUAL_WEIGHT + len(self._off)))


_NINE_OF_TEN = 1.645
_USUAL, _USUAL_WEIGHT = 0.05, 4


def _costs(step: StepFacts) -> tuple[float, ...]:
    amounts = (step.unique_bytes, step.total_bytes, step.flops, step.special_functions)
    return tuple(log(1024.0 + amount) for amount in amounts)
