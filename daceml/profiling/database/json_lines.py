"""Export and import as text: a line that says what it is, a line for each row, and one that says how many.

Needs nothing but Python, so a database can be shared, read by others and recovered everywhere.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

from daceml.errors import EntryError
from daceml.profiling.database.canonical import json_text
from daceml.profiling.database.exchange import (
    FORMAT,
    VERSION,
    check_version,
    entry_of,
    entry_record,
    refuse_export,
    written_aside,
)
from daceml.profiling.database.records import Entry
from daceml.profiling.database.store import OpDatabase, Written


def export_json_lines(database: OpDatabase, path: str | Path) -> int:
    """Write every row, by key, and return how many; the file is there once all of it is.

    Raises:
        DatabaseAccessError: it cannot be written.
        DatabaseDamageError: the database is damaged.
    """
    rows = 0
    with written_aside(Path(path)) as aside, aside.open("w", encoding="ascii", newline="\n") as file:
        file.write(json_text({"format": FORMAT, "version": VERSION}) + "\n")
        for rows, entry in enumerate(database.entries(), start=1):  # noqa: B007
            file.write(json_text(entry_record(entry)) + "\n")
        file.write(json_text({"rows": rows}) + "\n")
    return rows


def import_json_lines(database: OpDatabase, path: str | Path) -> Written:
    """Add every row of an export, or none.

    Raises:
        MeasurementFileError: it is no export, of a newer daceml, or not all there.
        DatabaseAccessError, DatabaseDamageError: the database cannot be written.
    """
    return database.add_all(read_json_lines(Path(path)), rows_per_commit=None)


def read_json_lines(path: Path) -> Iterator[Entry]:
    """The rows of an export.

    Raises:
        MeasurementFileError: it is no export, of a newer daceml, or not all there.
    """
    try:
        with path.open(encoding="utf-8") as file:
            header = _parsed(path, 1, file.readline())
            if not isinstance(header, dict) or cast("dict[str, Any]", header).get("format") != FORMAT:
                raise refuse_export(path, "its first line does not say that it is one")
            check_version(path, cast("dict[str, Any]", header).get("version"))
            rows, said = 0, None
            for number, line in enumerate(file, start=2):
                if said is not None:
                    raise refuse_export(path, f"line {number} is after the last one")
                record = _parsed(path, number, line)
                if isinstance(record, dict) and set(cast("dict[str, Any]", record)) == {"rows"}:
                    said = cast("dict[str, Any]", record)["rows"]
                    continue
                try:
                    yield entry_of(record)
                except EntryError as error:
                    raise refuse_export(path, f"line {number}: {error.what}; {error.why}") from error
                rows += 1
    except (OSError, UnicodeDecodeError) as error:
        raise refuse_export(path, str(error)) from error
    if said != rows:
        raise refuse_export(path, f"it has {rows} rows, and its last line says {said}")


def _parsed(path: Path, number: int, line: str) -> object:
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:
        raise refuse_export(path, f"line {number} is no JSON: {error}") from error
