"""A damaged database is put aside, and made again from an export."""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

from daceml.errors import DatabaseAccessError, DatabaseDamageError, DatabaseFileError
from daceml.operations.database.json_lines import import_json_lines
from daceml.operations.database.parquet import import_parquet
from daceml.operations.database.store import OpDatabase

_BESIDE = ("-wal", "-shm", "-journal")
_PARQUET = b"PAR1"
_MAKE_ROOM = "check permissions and room of its folder"
_SQLITE = b"SQLite format 3\0"


@dataclass(frozen=True, kw_only=True)
class Recovered:
    """What a recovery did.

    Attributes:
        rows: that the new database has.
        damaged: where the damaged file is now; None where there was none.
    """

    rows: int
    damaged: Path | None


def recover(path: str | Path, export: str | Path) -> Recovered:
    """Make a database again from an export, JSON lines or Parquet; the damaged file is kept aside.

    Close the database in every process first.

    Raises:
        DatabaseAccessError: the file is not damaged, so that rows newer than the export would be lost; or
            it cannot be written.
        DatabaseFileError: the file is somebody else's.
        MeasurementFileError: the export cannot be read; nothing was changed.
    """
    path, export = Path(path), Path(export)
    _check_damaged(path)
    try:
        folder = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
    except OSError as error:
        raise DatabaseAccessError(
            "the database cannot be made again here",
            where=str(path),
            why=str(error),
            fix=_MAKE_ROOM,
        ) from error
    made = folder / path.name
    try:
        with OpDatabase(made) as database:
            (import_parquet if _is_parquet(export) else import_json_lines)(database, export)
            rows = database.verify()
        damaged = _put_aside(path)
        made.replace(path)
    except OSError as error:
        raise DatabaseAccessError(
            "the database could not be replaced", where=str(path), why=str(error), fix=_MAKE_ROOM
        ) from error
    finally:
        for file in (made, *(folder / (path.name + ending) for ending in _BESIDE)):
            file.unlink(missing_ok=True)
        folder.rmdir()
    return Recovered(rows=rows, damaged=damaged)


def _check_damaged(path: Path) -> None:
    if not path.exists():
        return
    try:
        with OpDatabase(path, create=False, verify=True) as database:
            database.verify()
    except DatabaseDamageError:
        return
    except DatabaseFileError:
        with path.open("rb") as file:
            if file.read(len(_SQLITE)) != _SQLITE:
                return  # not even its first bytes are left
        raise
    raise DatabaseAccessError(
        "this operation database is not damaged",
        where=str(path),
        why="rows that were written since the export would be lost",
        fix="go on with it; to have both, import the export into it",
    )


def _put_aside(path: Path) -> Path | None:
    if not path.exists():
        return None
    number = 1
    while (aside := path.with_name(f"{path.name}.damaged-{number}")).exists():
        number += 1
    # the name that has the rows goes last, and never has none: it is a link until the new file is there
    try:
        os.link(path, aside)
    except OSError:  # a file system without links
        path.rename(aside)
    for ending in _BESIDE:
        beside = path.with_name(path.name + ending)
        if beside.exists():  # beside the new file, SQLite would write the old log into it
            beside.replace(aside.with_name(aside.name + ending))
    return aside


def _is_parquet(export: Path) -> bool:
    try:
        with export.open("rb") as file:
            return file.read(len(_PARQUET)) == _PARQUET
    except OSError:
        return False  # which the reader of JSON lines says
