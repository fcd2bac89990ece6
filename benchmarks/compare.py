"""What changed between two result files of one benchmark: python -m benchmarks.compare BEFORE.json AFTER.json

Ratios over the best peer are compared where both files come from one machine; a ratio has changed where the
intervals do not touch. Counts, which no clock decides, are always compared: the exit code is 1 if one of them
got worse, and 2 if the files cannot be compared.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# What a compiler decides alone, wherever in a row it stands; less is better, of each.
COUNTS = (
    "kernels",
    "bytes_moved",
    "conflict_edges",
    "zero_fills",
    "generated_lines",
    "onnxruntime_nodes",
    "daceml_bytes",
)
# Rows of one case differ in these.
KEYS = ("case", "model", "mode", "part", "layers", "batch", "budget_bytes", "draw")
# What entries of lists within a row are called by.
NAMES = ("after", "level")
# Intervals that were taken within rounds.
RATIOS = ("ratio_over_", "speedup", "gain")
# Arguments that decide how large the cases are.
SIZES = ("quick",)
# What a time depends on beside the code.
MACHINE = ("cpu", "cores", "gpu")


class NotComparableError(Exception):
    """Two files that say nothing about each other; the message says why."""


@dataclass(frozen=True, kw_only=True)
class Change:
    """One figure that is another one.

    Attributes:
        what: the case, and where in its row the figure stands.
        text: before and after, for people.
        worse: whether the compiler alone made it worse.
    """

    what: str
    text: str
    worse: bool = False


def load(file: Path) -> dict[str, Any]:
    """A result file.

    Raises:
        NotComparableError: it is none.
    """
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise NotComparableError(f"{file} cannot be read: {error}") from error
    if not isinstance(found, dict) or not {"benchmark", "machine", "arguments", "rows"} <= found.keys():
        raise NotComparableError(f"{file} is no result file: give what a benchmark wrote with --json")
    return found  # pyright: ignore[reportUnknownVariableType]


def compare(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[list[Change], list[str]]:
    """Every change, and what was not compared.

    Raises:
        NotComparableError: other benchmarks, other sizes, or no case in common.
    """
    if before["benchmark"] != after["benchmark"]:
        raise NotComparableError(
            f"one file is of {before['benchmark']}, the other of {after['benchmark']}:"
            " give two files of one benchmark"
        )
    for name in SIZES:
        old, new = (side["arguments"].get(name) for side in (before, after))
        if old != new:
            raise NotComparableError(
                f"{name} was {old} and is {new}: cases of other sizes; measure both with the same options"
            )
    old_rows, new_rows = (_by_key(side["rows"]) for side in (before, after))
    common = [key for key in old_rows if key in new_rows]
    if not common:
        raise NotComparableError(
            f"no case is in both files: one has {_named(old_rows)}, the other {_named(new_rows)};"
            " measure both with the same --mode and --only"
        )
    notes = [f"only before: {key}" for key in old_rows if key not in new_rows]
    notes += [f"only after: {key}" for key in new_rows if key not in old_rows]
    other = [name for name in MACHINE if before["machine"].get(name) != after["machine"].get(name)]
    if other:
        named = "; ".join(f"{n} {before['machine'].get(n)}, then {after['machine'].get(n)}" for n in other)
        notes.append(f"times are not compared, because the machines differ: {named}")
    changes: list[Change] = []
    for key in common:
        changes += count_changes(key, old_rows[key], new_rows[key])
        if not other:
            changes += ratio_changes(key, old_rows[key], new_rows[key])
    return changes, notes


def count_changes(what: str, before: Any, after: Any) -> Iterator[Change]:
    """Counts that differ, wherever in two rows they stand; those that only one row has are passed over."""
    for path, old, new in _pairs(before, after):
        if path[-1] in COUNTS and isinstance(old, int) and isinstance(new, int) and old != new:
            worse = new > old
            text = f"{old} -> {new}{' WORSE' if worse else ''}"
            yield Change(what=f"{what}: {' '.join(path)}", text=text, worse=worse)


def ratio_changes(what: str, before: Any, after: Any) -> Iterator[Change]:
    """Speed over the best peer, and other ratios within rounds, where intervals do not touch."""
    for path, old, new in _pairs(before, after):
        if not (path[-1].startswith(RATIOS) and _is_interval(old) and _is_interval(new)):
            continue
        if old["high"] < new["low"] or new["high"] < old["low"]:
            yield Change(what=f"{what}: {' '.join(path)}", text=f"{_interval(old)} -> {_interval(new)}")


def _pairs(before: Any, after: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any, Any]]:
    """Values that stand at the same place in both, with the names that lead there; outer ones first."""
    if path:
        yield path, before, after
    old, new = _entries(before), _entries(after)
    for name in old:
        if name in new:
            yield from _pairs(old[name], new[name], (*path, name))


def _entries(value: Any) -> dict[str, Any]:
    """What is inside a value by name; entries of a list are known by what they call themselves."""
    if isinstance(value, dict):
        return {str(name): entry for name, entry in value.items()}
    if not isinstance(value, list):
        return {}
    named = [(name, entry) for entry in value for name in NAMES if isinstance(entry, dict) and name in entry]
    return {str(entry[name]): entry for name, entry in named}


def _by_key(rows: Sequence[Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    return {_key(row): row for row in rows}


def _key(row: Mapping[str, Any]) -> str:
    """What a row is about; a word that another one has in it already is left out."""
    words = [str(row[name]) for name in KEYS if isinstance(row.get(name), str | int)]
    return " ".join(word for place, word in enumerate(words) if not any(word in w for w in words[:place]))


def _named(keys: Iterable[str]) -> str:
    return ", ".join(keys) or "none"


def _is_interval(value: Any) -> bool:
    return isinstance(value, dict) and {"median", "low", "high"} <= value.keys()


def _interval(value: Mapping[str, float]) -> str:
    return f"{value['median']:.3f} [{value['low']:.3f}, {value['high']:.3f}]"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Say what changed between two result files.")
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    options = parser.parse_args(arguments)
    try:
        before, after = load(options.before), load(options.after)
        changes, notes = compare(before, after)
    except NotComparableError as why:
        print(f"not comparable: {why}", file=sys.stderr)
        return 2
    print(f"{before['benchmark']}: {before['machine'].get('commit')} -> {after['machine'].get('commit')}")
    width = max((len(change.what) for change in changes), default=0)
    for change in changes:
        print(f"  {change.what:<{width}}  {change.text}")
    for note in notes:
        print(f"  {note}")
    worse = sum(change.worse for change in changes)
    print(f"{len(changes)} changed, {worse} counts worse" if changes else "nothing changed")
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main())
