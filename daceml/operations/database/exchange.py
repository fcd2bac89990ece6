"""Entries as plain values, as exports of every kind hold them."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, cast

from daceml.errors import DatabaseAccessError, EntryError, MeasurementFileError
from daceml.operations.database.canonical import (
    environment_of,
    environment_record,
    operation_of,
    operation_record,
)
from daceml.operations.database.records import Duration, Entry
from daceml.operations.database.validation import check_entry

FORMAT = "daceml operation database"
VERSION = 1  # of exports: they do not change with the tables
_DURATION = ("median_s", "samples", "mad_s", "p10_s", "p90_s", "mode")
_OTHER = ("provenance", "source", "licence", "date")


def entry_record(entry: Entry) -> dict[str, Any]:
    """An entry as plain values."""
    return {
        "operation": operation_record(entry.operation),
        "environment": environment_record(entry.environment),
        **{name: getattr(entry.duration, name) for name in _DURATION},
        **{name: getattr(entry, name) for name in _OTHER},
    }


def entry_of(record: object) -> Entry:
    """The entry of plain values that somebody else may have written.

    Raises:
        EntryError: they are no entry.
    """
    known = {"operation", "environment", *_DURATION, *_OTHER}
    if not isinstance(record, dict) or set(cast("dict[str, Any]", record)) != known:
        raise EntryError(
            "this is no row of an export", why=f"a row has {', '.join(sorted(known))}, and nothing else"
        )
    fields = cast("dict[str, Any]", record)
    entry = Entry(
        operation=operation_of(fields["operation"]),
        environment=environment_of(fields["environment"]),
        duration=Duration(**{name: fields[name] for name in _DURATION}),
        **{name: fields[name] for name in _OTHER},
    )
    check_entry(entry)
    return entry


def refuse_export(path: Path, why: str) -> MeasurementFileError:
    """The error of a file that is no export, or a damaged one."""
    return MeasurementFileError(
        "this is no export of an operation database that can be read",
        where=str(path),
        why=why,
        fix="export it again; nothing was imported from it",
    )


def check_version(path: Path, version: object) -> None:
    """Refuse what a newer daceml exported.

    Raises:
        MeasurementFileError: it did, or the version is none.
    """
    if type(version) is not int or not 1 <= version <= VERSION:
        raise MeasurementFileError(
            "this export is of another version",
            where=str(path),
            why=f"it is of version {version!r}, this daceml reads up to {VERSION}",
            fix="upgrade daceml",
        )


@contextmanager
def written_aside(path: Path) -> Generator[Path]:
    """A path to write to, which takes the place of `path` once all is on the disk; never half there.

    Raises:
        DatabaseAccessError: it cannot be written.
    """
    try:
        number, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        os.close(number)
        aside = Path(name)
        try:
            yield aside
            with aside.open("rb+") as file:
                os.fsync(file.fileno())
            aside.chmod(0o666 & ~_umask())
            aside.replace(path)
        finally:
            with suppress(FileNotFoundError):
                aside.unlink()
    except OSError as error:
        raise DatabaseAccessError(
            "this file cannot be written",
            where=str(path),
            why=str(error),
            fix="check permissions and room of its folder, or name another one",
        ) from error


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
