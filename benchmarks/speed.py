"""A network against its peers: interleaved times as ratios, and what is said of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.bars import Bar
from benchmarks.intervals import Median
from benchmarks.rounds import Measurement

OURS = "daceml"


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """One network in one mode.

    Attributes:
        case: network and mode, for people.
        measurement: of daceml and its peers.
        missing: peer -> why it is not there.
    """

    case: str
    measurement: Measurement
    missing: dict[str, str]

    @property
    def best_peer(self) -> str:
        """The fastest of the others."""
        others = [name for name in self.measurement.names if name != OURS]
        return min(others, key=lambda name: self.measurement.duration_us(name).value)

    @property
    def speedup(self) -> Median:
        """How many times faster than the best peer; above 1 is faster."""
        return self.measurement.ratio(self.best_peer, OURS)

    def line(self) -> str:
        times = ", ".join(
            f"{name} {self.measurement.duration_us(name).value / 1e3:.1f}" for name in self.measurement.names
        )
        quiet = "" if self.measurement.measured else " (not measured: too few quiet rounds)"
        return f"{self.case:<34} {self.speedup} times {self.best_peer}{quiet}; ms: {times}"

    def row(self) -> dict[str, Any]:
        return {
            "case": self.case,
            "best_peer": self.best_peer,
            "speedup": _as_json(self.speedup),
            "missing": self.missing,
            **self.measurement.row(OURS),
        }


def mean_bar(what: str, comparisons: Sequence[Comparison], at_least: float) -> Bar:
    """A bar on the geometric mean of the time over the best peer's."""
    measured = all(c.measurement.measured for c in comparisons)
    mean = math.exp(-sum(math.log(c.speedup.value) for c in comparisons) / len(comparisons))
    return Bar(
        name=f"{what}, geometric mean of the time over the best peer's",
        figure=mean if measured else None,
        limit=1.0 / at_least,
        note=f"{1 / mean:.2f} times as fast, n={len(comparisons)}",
    )


def slower_bar(what: str, comparisons: Sequence[Comparison], below: float) -> Bar:
    """A bar on how many rows are slower for certain."""
    slower = [c.case for c in comparisons if c.speedup.high < below]
    unmeasured = [c.case for c in comparisons if not c.measurement.measured]
    return Bar(
        name=f"{what}, rows whose interval lies wholly below {below:g}",
        figure=None if unmeasured else len(slower),
        limit=0,
        note=", ".join(unmeasured or slower),
    )


def _as_json(value: Median) -> dict[str, float]:
    return {"median": value.value, "low": value.low, "high": value.high, "n": value.n}
