"""Bars: a figure that was measured, beside the limit that it has to keep."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, TextIO


@dataclass(frozen=True, kw_only=True)
class Bar:
    """One promise and what was seen of it.

    Attributes:
        name: what was measured, in words.
        figure: what was seen; None where it could not be measured.
        limit: the largest figure that meets the bar.
        unit: of both; empty for a count or a ratio.
        note: an interval, a number of rounds, or why there is no figure.
        known: why a miss is known; empty where it is not, or where the bar is met.
    """

    name: str
    figure: float | None
    limit: float
    unit: str = ""
    note: str = ""
    known: str = ""

    @property
    def met(self) -> bool:
        """A bar that could not be measured is not met: silence is no evidence."""
        return self.figure is not None and self.figure <= self.limit

    def line(self) -> str:
        seen = "not measured" if self.figure is None else f"{self.figure:.4g}{_unit(self.unit)}"
        note = f" ({self.note})" if self.note else ""
        note += f" (known: {self.known})" if self.known else ""
        verdict = "met   " if self.met else "MISSED"
        return f"{verdict} {self.name}: {seen}, at most {self.limit:.4g}{_unit(self.unit)}{note}"

    def as_json(self) -> dict[str, Any]:
        found = {**asdict(self), "met": self.met}
        return found if self.known else {key: value for key, value in found.items() if key != "known"}


def report(bars: Sequence[Bar], *, stream: TextIO | None = None) -> int:
    """Print every bar and a closing line; return the exit code: 1 if one was missed."""
    stream = sys.stdout if stream is None else stream
    missed = sum(not bar.met for bar in bars)
    for bar in bars:
        print(bar.line(), file=stream)
    print(f"{len(bars) - missed} of {len(bars)} bars met", file=stream)
    return 1 if missed else 0


def _unit(unit: str) -> str:
    return f" {unit}" if unit else ""
