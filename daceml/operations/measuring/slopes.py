"""Time of one execution from chains of several lengths: what is the same for all of them cancels out.

A chain of n copies takes c + n t seconds; c (starting and stopping the clock, launching a graph) is no part
of the slope t. Tianshu takes two lengths; more of them and a robust slope bear a disturbance of one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import median, quantiles

from daceml.errors import MeasurementError
from daceml.operations.database.records import Duration, Mode
from daceml.operations.measuring.batches import Timed

LENGTHS = 4  # of chains; a slope through three bears one that is disturbed
ROUNDS = 15
PATIENCE = 8  # times as many rounds are taken on a busy machine before noise is said to hide what is measured
LONGEST_S = 4e-3  # of the longest chain: a clock's step is nothing, and few are interrupted
_MOST_COPIES = 4096


@dataclass(frozen=True, kw_only=True)
class Slopes:
    """Seconds of one execution, as each round saw it.

    Attributes:
        lengths: copies in the chains of a round.
        rounds_s: a slope per round, in time order.
    """

    lengths: tuple[int, ...]
    rounds_s: tuple[float, ...]

    @property
    def median_s(self) -> float:
        return median(self.rounds_s)

    @property
    def mad_s(self) -> float:
        """Median absolute deviation."""
        middle = self.median_s
        return median(abs(one - middle) for one in self.rounds_s)

    @property
    def doubt_s(self) -> float:
        """How far the median is known, of n rounds: about 1.25 x 1.48 MAD / sqrt(n) under normal noise."""
        return 1.85 * self.mad_s / len(self.rounds_s) ** 0.5

    @property
    def hidden(self) -> bool:
        """Whether the median is not above zero by more than it is known to."""
        return self.median_s <= self.doubt_s

    @property
    def deciles_s(self) -> tuple[float, float]:
        """The first and the ninth."""
        if len(self.rounds_s) == 1:
            return self.rounds_s[0], self.rounds_s[0]
        cuts = quantiles(self.rounds_s, n=10, method="inclusive")
        return cuts[0], cuts[-1]

    def duration(self, mode: Mode) -> Duration:
        """As the database keeps it."""
        low, high = self.deciles_s
        return Duration(
            median_s=self.median_s,
            samples=len(self.rounds_s),
            mad_s=self.mad_s,
            p10_s=max(0.0, low),
            p90_s=max(0.0, high),
            mode=mode,
        )


def theil_sen(points: Sequence[tuple[float, float]]) -> float:
    """The median of the slopes between all pairs of points.

    Raises:
        ValueError: fewer than two different abscissas.
    Source: Sen, Estimates of the regression coefficient based on Kendall's tau (JASA 1968).
    """
    found = [(y1 - y0) / (x1 - x0) for (x0, y0), (x1, y1) in combinations(points, 2) if x0 != x1]
    if not found:
        raise ValueError("a slope needs two points at different places")
    return median(found)


def lengths(timed: Timed, *, longest_s: float = LONGEST_S, most: int = _MOST_COPIES) -> tuple[int, ...]:
    """Lengths of chains, evenly spaced, of which the longest takes about `longest_s`; 1 to 4 at least.

    Args:
        timed: a chain of as many copies as it is told -> seconds.
        most: copies that a chain can have; at least 4.
    """
    timed(1)  # loads and allocates, and is no guide
    copies = 1
    while (seconds := timed(copies)) < longest_s / 2 and copies < most:
        copies = min(2 * copies, most)
    step = max(1, round(copies * longest_s / seconds / LENGTHS)) if seconds > 0 else most // LENGTHS
    step = min(step, most // LENGTHS)
    return tuple(step * number for number in range(1, LENGTHS + 1))


def one_round(timed: Timed, chains: Sequence[int], number: int = 0) -> float:
    """One slope; the order of lengths is reversed in every odd round, so that no drift looks like a slope."""
    # whatever ran before has the caches: the first chain would pay for that, and the others would not
    timed(chains[0])
    order = chains if number % 2 == 0 else tuple(reversed(chains))
    return theil_sen([(copies, timed(copies)) for copies in order])


def slopes(
    timed: Timed,
    *,
    rounds: int = ROUNDS,
    longest_s: float = LONGEST_S,
    most: int = _MOST_COPIES,
    spent: Callable[[], bool] = lambda: False,
) -> Slopes:
    """Slopes of several rounds, and of up to `PATIENCE` times as many while noise hides the time.

    Args:
        spent: asked before each round but the first three; True ends the measurement.
    Raises:
        MeasurementError: longer chains do not take longer, beyond what rounds differ by.
    """
    chains = lengths(timed, longest_s=longest_s, most=most)
    seen: list[float] = []
    wanted = rounds
    while len(seen) < wanted and not (len(seen) >= 3 and spent()):
        seen.append(one_round(timed, chains, len(seen)))
        # looked at after twice as many, not after each: sooner or later noise looks like anything
        if len(seen) == wanted < PATIENCE * rounds and Slopes(lengths=chains, rounds_s=tuple(seen)).hidden:
            wanted *= 2
    return checked(Slopes(lengths=chains, rounds_s=tuple(seen)))


def checked(found: Slopes) -> Slopes:
    """The slopes themselves, unless they are none.

    Raises:
        MeasurementError: the median is not above zero by more than its rounds differ.
    """
    if found.hidden:
        raise MeasurementError(
            "longer chains do not take longer",
            why=f"{found.median_s * 1e9:.1f} ns per copy, known to {found.doubt_s * 1e9:.1f} ns, in chains "
            f"of {', '.join(map(str, found.lengths))} copies",
            fix="measure it while nothing else runs, or larger operands",
        )
    return found
