"""What an edit changed, for people to read."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from daceml.simulation.graph import TaskGraph

_MOST = 20  # rows of each kind that a text shows
_SAME_US = 1e-9
_WHAT = ("removed", "inserted", "changed", "moved")


def shortened(name: str, most: int = 72) -> str:
    """A name of which templates left a whole page: its beginning."""
    return name if len(name) <= most else name[: most - 3].rstrip() + "..."


@dataclass(frozen=True, kw_only=True)
class Change:
    """Tasks of one name on one lane to which the same happened.

    Attributes:
        before_us, after_us: their durations in all; 0 where they did not, or do not, exist.
        gap_us: by how much longer the gaps before them are in all.
    """

    name: str
    lane: str
    count: int
    before_us: float
    after_us: float
    gap_us: float

    def __str__(self) -> str:
        gap = f", gaps {self.gap_us:+.1f} us" if abs(self.gap_us) > _SAME_US else ""
        return (
            f"{self.count} x {shortened(self.name)} ({self.lane}):"
            f" {self.before_us:.1f} -> {self.after_us:.1f} us{gap}"
        )


@dataclass(frozen=True, kw_only=True)
class Difference:
    """What is different in a graph that was edited; the largest change first, of equal ones by name.

    Attributes:
        moved: tasks that went to another lane; a task may have changed besides.
        edges_removed, edges_added: dependencies, by the keys of both ends, their kind and their lag.
    """

    removed: tuple[Change, ...] = ()
    inserted: tuple[Change, ...] = ()
    changed: tuple[Change, ...] = ()
    moved: tuple[Change, ...] = ()
    edges_removed: int = 0
    edges_added: int = 0

    def __bool__(self) -> bool:
        return bool(self.removed or self.inserted or self.changed or self.moved) or (
            self.edges_removed + self.edges_added > 0
        )

    def headline(self) -> str:
        """How many tasks were removed, inserted, changed and moved, in one line."""
        counts = {what: sum(row.count for row in getattr(self, what)) for what in _WHAT}
        return ", ".join(f"{count} {what}" for what, count in counts.items() if count) or "none"

    def to_json(self) -> dict[str, Any]:
        """All of it as an object for `json`; times in microseconds."""
        return asdict(self)

    def __str__(self) -> str:
        if not self:
            return "nothing changed"
        lines: list[str] = []
        for what in _WHAT:
            rows: tuple[Change, ...] = getattr(self, what)
            if rows:
                before_us = sum(row.before_us for row in rows)
                after_us = sum(row.after_us for row in rows)
                count = sum(row.count for row in rows)
                lines.append(f"{what} {count} tasks: {before_us:.1f} -> {after_us:.1f} us")
                lines += [f"  {row}" for row in rows[:_MOST]]
                if len(rows) > _MOST:
                    lines.append(f"  and {len(rows) - _MOST} other names")
        if self.edges_removed or self.edges_added:
            lines.append(f"edges: {self.edges_removed} removed, {self.edges_added} added")
        return "\n".join(lines)


def difference(before: TaskGraph, after: TaskGraph) -> Difference:
    """What was removed, inserted, changed and moved between a graph and one that was made of it."""
    there = before.index_of(after.tasks.key)  # of each task now, where it stood
    new = np.flatnonzero(there < 0)
    gone = np.flatnonzero(after.index_of(before.tasks.key) < 0)
    kept = np.flatnonzero(there >= 0)
    old = there[kept]
    gap_us = after.tasks.gap_us[kept] - before.tasks.gap_us[old]
    longer_us = after.tasks.duration_us[kept] - before.tasks.duration_us[old]
    pairs = list(zip(old.tolist(), kept.tolist(), strict=True))
    renamed = np.array([before.name_of(a) != after.name_of(b) for a, b in pairs], np.bool_)
    other = (np.abs(longer_us) > _SAME_US) | (np.abs(gap_us) > _SAME_US) | renamed
    elsewhere = np.array([_lane(before, a) != _lane(after, b) for a, b in pairs], np.bool_)
    edges_before, edges_after = _edges(before), _edges(after)
    return Difference(
        removed=_rows((before, gone), None),
        inserted=_rows(None, (after, new)),
        changed=_rows((before, old[other]), (after, kept[other])),
        moved=_rows((before, old[elsewhere]), (after, kept[elsewhere])),
        edges_removed=sum((edges_before - edges_after).values()),
        edges_added=sum((edges_after - edges_before).values()),
    )


def _edges(graph: TaskGraph) -> Counter[tuple[int | float, ...]]:
    edges, key = graph.edges, graph.tasks.key
    columns = (key[edges.source], key[edges.target], edges.kind, edges.from_start, edges.lag_us)
    return Counter(zip(*(column.tolist() for column in columns), strict=True))


def _lane(graph: TaskGraph, task: int) -> str:
    return graph.lanes[graph.tasks.lane[task]].name


Side = tuple[TaskGraph, NDArray[np.intp]]


def _rows(before: Side | None, after: Side | None) -> tuple[Change, ...]:
    """The tasks by name and lane; of those that exist on both sides, as they are now."""
    shown = after or before
    if shown is None:
        return ()
    sums: dict[tuple[str, str], list[float]] = {}
    for row, task in enumerate(shown[1].tolist()):
        total = sums.setdefault((shown[0].name_of(task), _lane(shown[0], task)), [0.0] * 4)
        total[0] += 1
        for side, (place, sign) in ((before, (1, -1.0)), (after, (2, 1.0))):
            if side is not None:
                graph, indices = side
                total[place] += float(graph.tasks.duration_us[indices[row]])
                total[3] += sign * float(graph.tasks.gap_us[indices[row]])
    rows = [
        Change(name=name, lane=lane, count=int(n), before_us=old, after_us=new, gap_us=gap)
        for (name, lane), (n, old, new, gap) in sums.items()
    ]
    return tuple(sorted(rows, key=lambda row: (-abs(row.after_us - row.before_us), row.name, row.lane)))
