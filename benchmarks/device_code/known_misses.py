"""Bars that are missed today, and why: they are printed as missed, and fail under --check only.

Entries are for blocks, so that `make cuda` finds new misses. An entry whose bar is met again fails until it
is removed.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from benchmarks.bars import Bar


@dataclass(frozen=True, kw_only=True)
class KnownMiss:
    """A miss whose cause is known.

    Attributes:
        case: as its rows have it.
        rule: of `rules.RULES`.
        kernels: a regular expression of whole names.
        architectures: for which it is missed.
    """

    case: str
    rule: str
    kernels: str
    architectures: tuple[int, ...]
    reason: str

    def covers(self, case: str, rule: str, architecture: int, kernel: str) -> bool:
        """Whether it is about this kernel."""
        about = (self.case, self.rule) == (case, rule) and architecture in self.architectures
        return about and re.fullmatch(self.kernels, kernel) is not None


KNOWN = (
    KnownMiss(
        case="block batch_norm",
        rule="grid",
        kernels=r"BatchNormalization\w*",
        architectures=(80, 90, 100),
        reason="statistics of a channel are those of one block, and there are 64 channels; rows of batch norm"
        " are not cut into chunks yet",
    ),
)


def known_reason(case: str, rule: str, architecture: int, offenders: Iterable[str]) -> str:
    """Why all of these kernels miss a rule; empty if one of them is not known to."""
    reasons: dict[str, None] = {}
    for kernel in offenders:
        covering = [one for one in KNOWN if one.covers(case, rule, architecture, kernel)]
        if not covering:
            return ""
        reasons[covering[0].reason] = None
    return "; ".join(reasons)


def stale_bars(
    case: str, measured: Collection[tuple[str, int]], missed: Iterable[tuple[str, int, str]]
) -> list[Bar]:
    """One bar for each entry of a case: it has to be missed still, where that was measured.

    Args:
        measured: rules and architectures with a figure.
        missed: rule, architecture and kernel of every miss.
    """
    seen = list(missed)
    bars: list[Bar] = []
    for entry in [one for one in KNOWN if one.case == case]:
        judged = [one for one in entry.architectures if (entry.rule, one) in measured]
        still = {at for rule, at, kernel in seen if entry.covers(case, rule, at, kernel)}
        gone = ", ".join(f"sm_{one}" for one in judged if one not in still)
        bars.append(
            Bar(
                name=f"{case}: known misses of {entry.kernels} that are gone",
                figure=sum(one not in still for one in judged) if judged else None,
                limit=0,
                note=f"{gone}: remove the entry from benchmarks/device_code/known_misses.py" if gone else "",
            )
        )
    return bars
