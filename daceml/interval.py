"""Medians with nonparametric intervals, for samples whose distribution nobody knows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median


@dataclass(frozen=True, kw_only=True)
class Median:
    """A median and the interval that holds the true one with at least 95 % (or the widest there is).

    Attributes:
        value: the sample median.
        low, high: order statistics around it.
        n: samples.
        confidence: what the interval reaches; below 0.95 only where n < 6.
    """

    value: float
    low: float
    high: float
    n: int
    confidence: float

    def __str__(self) -> str:
        return f"{self.value:.3f} [{self.low:.3f}, {self.high:.3f}] n={self.n}"


def as_json(value: Median) -> dict[str, float]:
    """A median as result files have it."""
    return {"median": value.value, "low": value.low, "high": value.high, "n": value.n}


def median_interval(samples: Sequence[float], *, confidence: float = 0.95) -> Median:
    """The median with an interval of order statistics.

    The interval from the k-th smallest to the k-th largest of n samples misses the true median with
    probability 2 P(Binomial(n, 1/2) < k), whatever the distribution; k is the largest for which it holds it
    often enough.

    Raises:
        ValueError: there are no samples.
    Source: Le Boudec, Performance Evaluation of Computer and Communication Systems (2010), theorem 2.1.
    """
    n = len(samples)
    if n == 0:
        raise ValueError("a median needs at least one sample")
    ordered = sorted(samples)
    rank, reached = 1, _coverage(n, 1)
    while rank + 1 <= n // 2 and _coverage(n, rank + 1) >= confidence:
        rank += 1
        reached = _coverage(n, rank)
    return Median(
        value=median(ordered), low=ordered[rank - 1], high=ordered[n - rank], n=n, confidence=reached
    )


def _coverage(n: int, rank: int) -> float:
    """The probability that the rank-th smallest and rank-th largest of n samples enclose the true median."""
    return max(0.0, 1.0 - 2.0 * sum(math.comb(n, i) for i in range(rank)) / 2.0**n)
