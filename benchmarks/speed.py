"""A network against its peers: interleaved times as ratios, and what is said of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from benchmarks.bars import Bar
from benchmarks.rounds import Measurement
from daceml.interval import Median, as_json

OURS = "daceml"
# with freeze=True, as ONNX Runtime's weights always are; with bars of its own, and nobody's peer
FROZEN = "daceml_frozen"
# what its name ends with runs under the machine's own allocator: no peer of what runs under the tuned one
DEFAULT = "@default"


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """One network in one mode.

    Attributes:
        case: network and mode, for people.
        measurement: of daceml and its peers.
        missing: peer -> why it is not there.
        ours: what is compared with peers, `OURS` or `FROZEN`.
    """

    case: str
    measurement: Measurement
    missing: dict[str, str] = field(default_factory=dict[str, str])
    ours: str = OURS

    @property
    def best_peer(self) -> str:
        """The fastest of the others under the same allocator."""
        ours = (OURS, FROZEN)
        others = [n for n in self.measurement.names if n not in ours and not n.endswith(DEFAULT)]
        return min(others, key=lambda name: self.measurement.duration_us(name).value)

    @property
    def speedup(self) -> Median:
        """How many times faster than the best peer; above 1 is faster."""
        return self.measurement.ratio(self.best_peer, self.ours)

    @property
    def frozen(self) -> Comparison | None:
        """With weights that do not change any more, where that was measured."""
        return replace(self, ours=FROZEN) if FROZEN in self.measurement.names else None

    def line(self) -> str:
        if len(self.measurement.names) < 2:
            return f"{self.case:<34} not measured: {self.measurement.missing}"
        times = ", ".join(
            f"{name} {self.measurement.duration_us(name).value / 1e3:.1f}" for name in self.measurement.names
        )
        quiet = "" if self.measurement.measured else " (not measured: too few quiet rounds)"
        return f"{self.case:<34} {self.speedup} times {self.best_peer}{quiet}; ms: {times}"

    def row(self) -> dict[str, Any]:
        return {
            "case": self.case,
            "best_peer": self.best_peer,
            "speedup": as_json(self.speedup),
            "missing": {**self.missing, **self.measurement.missing},
            **self.measurement.row(OURS),
        }


def mean_bar(what: str, comparisons: Sequence[Comparison], at_least: float) -> Bar:
    """A bar on the geometric mean of the time over the best peer's."""
    speedups = [c.speedup.value for c in comparisons if c.measurement.measured]
    unmeasured = [c.case for c in comparisons if not c.measurement.measured]
    return speedup_bar(
        f"{what}, geometric mean of the time over the best peer's", speedups, at_least, unmeasured
    )


def default_bar(what: str, comparisons: Sequence[Comparison], at_least: float) -> Bar:
    """A bar on the geometric mean of the time over eager's, both with the machine's own allocator."""
    pair = ("eager" + DEFAULT, OURS + DEFAULT)
    unmeasured = [
        c.case for c in comparisons if not c.measurement.measured or not set(pair) <= set(c.measurement.names)
    ]
    speedups = [c.measurement.ratio(*pair).value for c in comparisons if c.case not in unmeasured]
    return speedup_bar(
        f"{what}, geometric mean of the time over eager's with the default allocator",
        speedups,
        at_least,
        unmeasured,
    )


def speedup_bar(name: str, speedups: Sequence[float], at_least: float, unmeasured: Sequence[str]) -> Bar:
    """A bar on the inverse of the geometric mean of speedups; not met where one is unmeasured."""
    if unmeasured or not speedups:
        why = ", ".join(unmeasured) or "nothing"
        return Bar(name=name, figure=None, limit=1.0 / at_least, note=f"not measured: {why}")
    mean = geometric_mean(speedups)
    return Bar(
        name=name,
        figure=1.0 / mean,
        limit=1.0 / at_least,
        note=f"{mean:.2f} times as fast, n={len(speedups)}",
    )


def geometric_mean(values: Sequence[float]) -> float:
    """Of positive numbers, at least one."""
    return math.exp(sum(map(math.log, values)) / len(values))


def slower_bar(what: str, comparisons: Sequence[Comparison], below: float) -> Bar:
    """A bar on how many rows are slower for certain."""
    slower = [c.case for c in comparisons if c.measurement.measured and c.speedup.high < below]
    unmeasured = [c.case for c in comparisons if not c.measurement.measured]
    return Bar(
        name=f"{what}, rows whose interval lies wholly below {below:g}",
        figure=None if unmeasured else len(slower),
        limit=0,
        note=", ".join(unmeasured or slower),
    )
