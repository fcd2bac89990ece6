"""Rows of somebody's table: what each measured, how many measured the same, and which mean nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import TypeVar

from daceml.errors import EntryError, MeasurementFileError
from daceml.operations.database.canonical import environment_text, operation_text
from daceml.operations.database.records import Duration, Entry, Environment, Mode, Operation
from daceml.operations.database.validation import check_entry

MS, US = 1e-3, 1e-6
Row = TypeVar("Row")
_ANY_DATE = "1970-01-01"
# the beginning of a licence's text, without spaces and in lower case -> SPDX
_LICENCES = {
    "apachelicenseversion2.0": "Apache-2.0",
    "mitlicense": "MIT",
    # the same permission without its name
    "permissionisherebygranted,freeofcharge,toanypersonobtainingacopyofthissoftware": "MIT",
}


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """One line of a table that was understood."""

    operation: Operation
    environment: Environment
    mode: Mode
    seconds: float


@dataclass(frozen=True, kw_only=True)
class Imported:
    """What a file gave.

    Attributes:
        entries: by the order in which the file has them first.
        rows: that the file has.
        repeated: rows that measured what an earlier one did; the entry has the median of all of them.
        malformed: number of a row (the first is 1) -> why it means nothing; no entry counts it.
    """

    entries: tuple[Entry, ...]
    rows: int
    repeated: int = 0
    malformed: dict[int, str] = field(default_factory=dict[int, str])

    def report(self) -> str:
        """One line, and one for each of the first malformed rows."""
        counts = f"{len(self.entries)} entries, {self.repeated} repeated, {len(self.malformed)} malformed"
        shown = [f"row {row}: {why}" for row, why in sorted(self.malformed.items())[:5]]
        more = [f"and {len(self.malformed) - 5} more"] if len(self.malformed) > 5 else []
        return "\n  ".join([f"{self.rows} rows: {counts}", *shown, *more])


def imported(
    rows: Iterable[Row],
    understand: Callable[[Row], Measurement],
    *,
    path: Path,
    date: str,
    licence: str | None = None,
) -> Imported:
    """Entries of a table that lies in a set with a licence, or whose licence is given.

    Args:
        understand: raises ValueError, TypeError or KeyError where a row means nothing.
        path: of the file.
        date: ISO 8601, of every entry: tables do not say when they were measured.
    Raises:
        MeasurementFileError: there is no licence, or no row means anything.
        EntryError: the date is none.
    """
    source, licence = origin(path) if licence is None else (path.name, licence)
    seen: dict[tuple[str, str, Mode], list[Measurement]] = {}
    malformed: dict[int, str] = {}
    number = 0
    for number, row in enumerate(rows, start=1):
        try:
            measured = understand(row)
            check_entry(_entry([measured], source=source, licence=licence, date=_ANY_DATE))
        except (ValueError, TypeError, KeyError) as error:
            malformed[number] = f"{type(error).__name__}: {error}"
        except EntryError as error:
            malformed[number] = error.why
        else:
            key = (operation_text(measured.operation), environment_text(measured.environment), measured.mode)
            seen.setdefault(key, []).append(measured)
    if not seen:
        raise MeasurementFileError(
            "no row of this table can be imported",
            where=str(path),
            why=f"row 1: {malformed[1]}" if malformed else "it has none",
            fix="give the file as its authors published it, to the importer of its set",
        )
    entries = tuple(_entry(alike, source=source, licence=licence, date=date) for alike in seen.values())
    check_entry(entries[0])  # the date, which they share
    repeated = sum(len(alike) - 1 for alike in seen.values())
    return Imported(entries=entries, rows=number, repeated=repeated, malformed=malformed)


def origin(path: Path) -> tuple[str, str]:
    """Name of a file from its set's folder on, and the licence that lies in that folder.

    Raises:
        MeasurementFileError: there is no licence in a folder around it, or one that is not known.
    """
    for folder in path.absolute().parents:
        file = folder / "LICENSE"
        if not file.is_file():
            continue
        text = "".join(file.read_text(encoding="utf-8", errors="replace").lower().split())
        found = [spdx for words, spdx in _LICENCES.items() if words in text[:600]]
        if not found:
            break
        return f"{folder.name}/{path.absolute().relative_to(folder).as_posix()}", found[0]
    raise MeasurementFileError(
        "it is not known under which licence these measurements are",
        where=str(path),
        why="there is no LICENSE in a folder around it that begins as that of Apache 2.0 or MIT does",
        fix="leave the file in its set; licences are known in daceml.operations.database.importers.table",
    )


def positive(text: object) -> float:
    """A number above zero.

    Raises:
        ValueError: it is none.
    """
    number = float(str(text))
    if not 0 < number < float("inf"):
        raise ValueError(f"{text} is no duration above zero")
    return number


def size(text: object) -> int:
    """A whole number above zero.

    Raises:
        ValueError: it is none.
    """
    number = int(str(text))
    if number < 1:
        raise ValueError(f"{text} is no size from 1 on")
    return number


def _entry(alike: Sequence[Measurement], *, source: str, licence: str, date: str) -> Entry:
    seconds = [one.seconds for one in alike]
    middle = median(seconds)
    spread = median(abs(one - middle) for one in seconds) if len(seconds) > 1 else None
    return Entry(
        operation=alike[0].operation,
        environment=alike[0].environment,
        duration=Duration(median_s=middle, samples=len(seconds), mad_s=spread, mode=alike[0].mode),
        provenance="imported",
        source=source,
        licence=licence,
        date=date,
    )
