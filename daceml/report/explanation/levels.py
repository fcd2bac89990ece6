"""The levels of an explanation: before and after each, and what was refused, grouped by reason."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from daceml.runtime.records.levels import LEVELS, LevelRecord, RefusalRecord, applied_by
from daceml.text_tables import in_millions

TITLES: Mapping[str, str] = {
    "coarse": "1 coarse",
    "operators": "  lowering",
    "local": "2 local",
    "layout": "3 layout",
    "hardware": "4 hardware",
}

# What differs between two refusals of one reason: numbers, and ranges or names in brackets.
_DETAIL = re.compile(r"\[[^\]]*\]|'[^']*'|\d+(\.\d+)?")


@dataclass(frozen=True, kw_only=True)
class Level:
    """One level as it is shown.

    Attributes:
        name: one of `LEVELS`.
        before, after: `steps` (operators, or kernels and calls) and `unique_bytes`, and for the layout
            `workspace_bytes`.
        passes: those that ran, in order -> what each changed -> how often; nothing where it found nothing.
        refused: every refusal, largest data first.
    """

    name: str
    before: dict[str, int]
    after: dict[str, int]
    passes: dict[str, dict[str, int]]
    refused: tuple[RefusalRecord, ...]

    @property
    def applied(self) -> dict[str, int]:
        """What was changed -> how often, over all passes."""
        return applied_by(self.passes)

    @property
    def groups(self) -> tuple[RefusalGroup, ...]:
        """Refusals with the same reason together, those that concern most bytes first."""
        return group(self.refused)


@dataclass(frozen=True, kw_only=True)
class RefusalGroup:
    """Refusals of one transformation that differ in numbers and names only, largest data first."""

    refusals: tuple[RefusalRecord, ...]

    @property
    def size_bytes(self) -> int:
        return sum(refusal.size_bytes for refusal in self.refusals)

    @property
    def sentence(self) -> str:
        """Where the largest is, how many others there are, their bytes, and the reason of the largest."""
        return refusal_sentence(self.refusals[0], len(self.refusals) - 1, self.size_bytes)


def refusal_sentence(refusal: RefusalRecord, others: int, size_bytes: int) -> str:
    """Where a transformation does not apply, and why.

    Args:
        others: refusals with the same reason.
        size_bytes: of the data that it and the others concern.
    """
    place = f" ({refusal.where})" if refusal.where else ""
    more = f" and {others} more" if others else ""
    size = f", {in_millions(size_bytes)} MB" if size_bytes else ""
    reason = refusal.reason[:1].lower() + refusal.reason[1:]
    return f"{refusal.transformation}, {refusal.subject}{place}{more}{size}: {reason}"


def what_changed(name: str, done: Mapping[str, int]) -> str:
    """A pass with what it changed and how often: `fuse_maps x2`, `pack_weights (packed Gemm x2)`."""
    if not done:
        return ""
    if list(done) == [name]:
        return f"{name} x{done[name]}"
    return f"{name} ({', '.join(f'{what} x{times}' for what, times in done.items())})"


def group(refusals: Iterable[RefusalRecord]) -> tuple[RefusalGroup, ...]:
    """Bring refusals with the same reason together; order: bytes, then how many."""
    found: dict[tuple[str, str], list[RefusalRecord]] = {}
    for refusal in refusals:
        found.setdefault((refusal.transformation, _DETAIL.sub("…", refusal.reason)), []).append(refusal)
    groups = [RefusalGroup(refusals=tuple(_largest_first(members))) for members in found.values()]
    return tuple(sorted(groups, key=lambda g: (-g.size_bytes, -len(g.refusals))))


def levels_of(
    records: Iterable[LevelRecord], *, lowered: Mapping[str, int], final: Mapping[str, int]
) -> tuple[Level, ...]:
    """The levels of a program in order; none where it has no records.

    Args:
        lowered: steps and unique bytes before any fusion.
        final: steps and unique bytes of the program.
    """
    by_name = {record.level: record for record in records}
    if not by_name:
        return ()
    known = [by_name.get(name, LevelRecord(level=name)) for name in LEVELS]
    operators = _amounts(by_name["operators"].figures) if "operators" in by_name else {}
    defaults = {"coarse": operators, "operators": operators, "local": dict(lowered)}
    before = [_amounts(record.figures) or defaults.get(record.level, dict(final)) for record in known]
    after = [*before[1:], dict(final)]
    levels: list[Level] = []
    for record, start, end in zip(known, before, after, strict=True):
        memory = record.figures
        levels.append(
            Level(
                name=record.level,
                before=start | _renamed(memory, "separate_bytes"),
                after=end | _renamed(memory, "workspace_bytes"),
                passes=record.passes,
                refused=tuple(_largest_first(record.refused)),
            )
        )
    return tuple(levels)


def _amounts(figures: Mapping[str, int]) -> dict[str, int]:
    return {name: figures[name] for name in ("steps", "unique_bytes") if name in figures}


def _renamed(figures: Mapping[str, int], name: str) -> dict[str, int]:
    return {"workspace_bytes": figures[name]} if name in figures else {}


def _largest_first(refusals: Iterable[RefusalRecord]) -> list[RefusalRecord]:
    return sorted(refusals, key=lambda refusal: -refusal.size_bytes)
