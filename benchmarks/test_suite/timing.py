"""What a run of the suite took: per test and per cause, from the files that `recorder` wrote."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.test_suite.causes import CAUSES

_NAMED_S = (
    2.0  # tests from this on have a row of their own; the others are summed up for each file, if it matters
)


@dataclass(frozen=True, kw_only=True)
class TestTime:
    """Seconds of one test.

    Attributes:
        test: its name, `FILE::NAME`, or `collection`.
        wall_s: from its setup to the end of its teardown.
        own_cpu_s, children_cpu_s: processor time of its process, and of processes that it has waited for.
        causes: cause -> seconds of the main thread, see `causes`.
    """

    __test__ = False  # no test of pytest's

    test: str
    wall_s: float
    own_cpu_s: float
    children_cpu_s: float
    causes: dict[str, float]


def read(folder: Path) -> list[TestTime]:
    """Every test of a run."""
    files = [file.read_text(encoding="utf-8") for file in sorted(folder.glob("*.jsonl"))]
    lines = [json.loads(line) for text in files for line in text.splitlines()]
    return [
        TestTime(
            test=line["test"],
            wall_s=line["wall_s"],
            own_cpu_s=line.get("own_cpu", 0.0),
            children_cpu_s=line.get("children_cpu", 0.0),
            causes=line["causes"],
        )
        for line in lines
    ]


def rows(times: Sequence[TestTime]) -> list[dict[str, Any]]:
    """A row for each folder, the longest first; then the long tests, and files with many short ones."""
    folders = _summed(times, _folder, "folder")
    named = [time for time in times if time.wall_s >= _NAMED_S]
    others = _summed((time for time in times if time.wall_s < _NAMED_S), _file, "tests of file")
    tests = [{"test": time.test, **_sums([time])} for time in named]
    long = [row for row in others if row["wall_s"] >= _NAMED_S]
    return [*folders, *sorted([*tests, *long], key=lambda row: -row["wall_s"])]


def table(times: Sequence[TestTime], *, width: int = 16) -> str:
    """Seconds by folder and cause, for a terminal."""
    columns = ("tests", "wall_s", "own_cpu_s", "children_cpu_s", *CAUSES)
    heads = ("tests", "wall", "own", "child cpu", *CAUSES)
    lines = [f"{'seconds':<{width}}" + "".join(f"{head:>10}" for head in heads)]
    for row in [*_summed(times, _folder, "folder"), {"folder": "all", **_sums(times)}]:
        values = "".join(f"{row.get(column, 0):>10.0f}" for column in columns)
        lines.append(f"{row['folder'][:width]:<{width}}{values}")
    return "\n".join(lines)


def _summed(times: Iterable[TestTime], key: Any, name: str) -> list[dict[str, Any]]:
    groups: dict[str, list[TestTime]] = {}
    for time in times:
        groups.setdefault(key(time), []).append(time)
    return sorted(
        ({name: group, **_sums(members)} for group, members in groups.items()), key=lambda row: -row["wall_s"]
    )


def _sums(times: Iterable[TestTime]) -> dict[str, Any]:
    members = list(times)
    sums = {
        "wall_s": sum(time.wall_s for time in members),
        "own_cpu_s": sum(time.own_cpu_s for time in members),
        "children_cpu_s": sum(time.children_cpu_s for time in members),
    }
    for cause in (*CAUSES, "compiler_busy"):
        seconds = sum(time.causes.get(cause, 0.0) for time in members)
        if seconds >= 0.005:
            sums[cause] = seconds
    return {"tests": len(members), **{name: round(value, 2) for name, value in sums.items()}}


def _file(time: TestTime) -> str:
    return time.test.partition("::")[0]


def _folder(time: TestTime) -> str:
    parts = _file(time).split("/")
    return parts[1] if len(parts) > 2 else "(top)" if len(parts) == 2 else parts[0]
