"""Export and import as text: a line that says what it is, one for each row, one with their number and digest.

Needs nothing but Python, so a database can be shared, read by others and recovered everywhere.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

from daceml.errors import EntryError
from daceml.operations.database.canonical import json_text
from daceml.operations.database.exchange import (
    FORMAT,
    VERSION,
    check_version,
    entry_of,
    entry_record,
    refuse_export,
    written_aside,
)
from daceml.operations.database.records import Entry
from daceml.operations.database.store import OpDatabase, Written


def export_json_lines(database: OpDatabase, path: str | Path) -> int:
    """Write every row, by key, and return how many; the file is there once all of it is.

    Raises:
        DatabaseAccessError: it cannot be written.
        DatabaseDamageError: the database is damaged.
    """
    rows, seen = 0, hashlib.sha256()
    with written_aside(Path(path)) as aside, aside.open("wb") as file:
        file.write(_line({"format": FORMAT, "version": VERSION}))
        for entry in database.entries():
            line = _line(entry_record(entry))
            file.write(line)
            seen.update(line)
            rows += 1
        file.write(_line({"rows": rows, "sha256": seen.hexdigest()}))
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
        with path.open("rb") as file:
            header = _parsed(path, 1, file.readline())
            if not isinstance(header, dict) or cast("dict[str, Any]", header).get("format") != FORMAT:
                raise refuse_export(path, "its first line does not say that it is one")
            check_version(path, cast("dict[str, Any]", header).get("version"))
            rows, seen, said = 0, hashlib.sha256(), None
            for number, line in enumerate(file, start=2):
                if said is not None:
                    raise refuse_export(path, f"line {number} is after the last one")
                record = _parsed(path, number, line)
                if isinstance(record, dict) and set(cast("dict[str, Any]", record)) == {"rows", "sha256"}:
                    said = cast("dict[str, Any]", record)
                    continue
                try:
                    yield entry_of(record)
                except EntryError as error:
                    raise refuse_export(path, f"line {number}: {error.what}; {error.why}") from error
                rows += 1
                seen.update(line)
    except OSError as error:
        raise refuse_export(path, str(error)) from error
    if said is None or said["rows"] != rows:
        raise refuse_export(path, f"it has {rows} rows, and its last line says {said and said['rows']}")
    if said["sha256"] != seen.hexdigest():
        raise refuse_export(path, "its rows are not those that were written: their digest is another one")


def _line(record: object) -> bytes:
    return json_text(record).encode("ascii") + b"\n"


def _parsed(path: Path, number: int, line: bytes) -> object:
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:
        raise refuse_export(path, f"line {number} is no JSON: {error}") from error
