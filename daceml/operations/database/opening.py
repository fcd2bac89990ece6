"""A connection to a database file, once it is known to be one of ours and nothing in it can run.

A file from somebody else is data. SQLite would run its triggers, views, defaults and index expressions, so a
file is taken only if its schema is word for word the one that daceml makes; and whatever appears in it later
is stopped by an authorizer, which refuses every access on behalf of a trigger or view.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from daceml.errors import DatabaseAccessError, DatabaseDamageError, DatabaseFileError, EntryError
from daceml.operations.database import schema

_MAGIC = b"SQLite format 3\0"
_RECOVER = "daceml.operations.database.recovery.recover(path, export) rebuilds it from an export"
_CACHE_KIB = 64 * 1024
_DENIED = {sqlite3.SQLITE_ATTACH, sqlite3.SQLITE_DETACH}


def connect(path: Path, *, create: bool, timeout_s: float, verify: bool | None) -> sqlite3.Connection:
    """Open, and make or migrate where needed.

    Args:
        create: whether to make the file if there is none.
        timeout_s: how long to wait for other writers.
        verify: whether SQLite reads the whole file through first; None: where there is reason to.
    Raises:
        DatabaseFileError: it is no database of daceml's, or a newer one.
        DatabaseDamageError: it is damaged.
        DatabaseAccessError: it cannot be read or written, or is locked for too long.
    """
    _check_file(path, create=create)
    suspicious = _suspicious(path)
    with refusals(path):
        connection = sqlite3.connect(
            path.absolute(), timeout=timeout_s, isolation_level=None, cached_statements=64
        )
        try:
            _set_up(connection)
            version = _recognise(connection, path)
            if (suspicious if verify is None else verify) and version:
                check_pages(connection, path, thorough=bool(verify))
            if version < schema.VERSION:
                _make_or_migrate(connection, path)
            use_write_ahead_log(connection, timeout_s)
        except BaseException:
            connection.close()
            raise
    return connection


@contextmanager
def refusals(path: Path) -> Generator[None]:
    """Turns what SQLite refuses into errors that say what to do.

    Raises:
        DatabaseDamageError: the file is damaged.
        DatabaseAccessError: it is locked, cannot be written, or the disk is full.
    """
    try:
        yield
    except sqlite3.ProgrammingError as error:  # closed, or of another thread
        raise DatabaseAccessError(
            "the database cannot be used from here",
            where=str(path),
            why=str(error),
            fix="open it again: an OpDatabase belongs to one thread and ends with its `with` block",
        ) from error
    except UnicodeDecodeError as error:  # a text of the file, or SQLite's message that quotes one
        raise damage(path, str(error)) from error
    except sqlite3.OperationalError as error:
        raise _operational(path, error) from error
    except sqlite3.DatabaseError as error:
        if getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_AUTH:
            raise DatabaseFileError(
                "something in this operation database would have been run",
                where=str(path),
                why=f"SQLite says: {error}; a trigger or view was added since it was opened",
                fix="do not use it: ask for an export instead",
            ) from error
        raise damage(path, str(error)) from error


def damage(path: Path, why: str) -> DatabaseDamageError:
    """The error of a file that is not as it was written."""
    return DatabaseDamageError(
        "this operation database is damaged", where=str(path), why=why, fix=f"close it everywhere; {_RECOVER}"
    )


def check_pages(connection: sqlite3.Connection, path: Path, *, thorough: bool) -> None:
    """Let SQLite read the whole file through.

    Args:
        thorough: whether it also looks every row up in every index, which takes several times as long.
    Raises:
        DatabaseDamageError: it found something.
    """
    check = "integrity_check(5)" if thorough else "quick_check(5)"
    found = [str(row[0]) for row in connection.execute(f"PRAGMA {check}")]
    if found != ["ok"]:
        raise damage(path, "\n".join(found))


def _check_file(path: Path, *, create: bool) -> None:
    try:
        with path.open("rb") as file:
            start = file.read(len(_MAGIC))
    except FileNotFoundError as error:
        if create and path.parent.is_dir():
            return
        raise DatabaseAccessError(
            "there is no such operation database" if path.parent.is_dir() else "there is no such folder",
            where=str(path),
            fix="correct the path" + ("" if create else "; `daceml measure` or create=True makes a database"),
        ) from error
    except OSError as error:
        raise DatabaseAccessError(
            "the operation database cannot be read", where=str(path), why=str(error), fix="name a file"
        ) from error
    if start and start != _MAGIC:
        raise DatabaseFileError(
            "this is no operation database",
            where=str(path),
            why=f"it begins with {start!r}, as no file of SQLite does",
            fix=f"name another file; if this was one, it is damaged: {_RECOVER}",
        )


def _suspicious(path: Path) -> bool:
    """Whether a writer did not close, or has not yet; SQLite sees itself where a file is too short."""
    beside = [path.with_name(path.name + ending) for ending in ("-wal", "-journal")]
    return any(file.exists() and file.stat().st_size for file in beside)


def _set_up(connection: sqlite3.Connection) -> None:
    connection.set_authorizer(_authorize)
    connection.execute("PRAGMA trusted_schema = OFF")
    connection.execute("PRAGMA cell_size_check = ON")
    connection.execute("PRAGMA foreign_keys = ON")
    # keys are digests, so every lot of rows touches pages all over the file
    connection.execute(f"PRAGMA cache_size = -{_CACHE_KIB:d}")
    # a commit is on the disk when it returns, also if the machine loses power
    connection.execute("PRAGMA synchronous = FULL")


def _authorize(action: int, _1: str | None, _2: str | None, _3: str | None, behind: str | None) -> int:
    return sqlite3.SQLITE_DENY if behind is not None or action in _DENIED else sqlite3.SQLITE_OK


def _recognise(connection: sqlite3.Connection, path: Path) -> int:
    """The version of the tables; 0 of a file that is empty.

    Raises:
        DatabaseFileError: somebody else made it, or a newer daceml.
        DatabaseDamageError: its tables are others than those that were made.
    """
    names = ("application_id", "user_version")
    application, version = (connection.execute(f"PRAGMA {name}").fetchone()[0] for name in names)
    actual = schema.objects(connection)
    if (application, version, actual) == (0, 0, {}):
        return 0
    if application != schema.APPLICATION_ID:
        raise DatabaseFileError(
            "this is another program's SQLite file, no operation database",
            where=str(path),
            why=f"its application_id is {application & 0xFFFFFFFF:#x}, ours is {schema.APPLICATION_ID:#x}",
            fix="name another file: nothing was changed in this one",
        )
    if version > schema.VERSION:
        raise DatabaseFileError(
            "this operation database is of a newer daceml",
            where=str(path),
            why=f"its tables are of version {version}, this daceml knows up to {schema.VERSION}",
            fix="upgrade daceml, or export it there as JSON lines and import them here",
        )
    expected = schema.expected_objects(max(version, 0))
    if version < 1 or actual != expected:
        odd = sorted(key for key in actual.keys() | expected.keys() if actual.get(key) != expected.get(key))
        named = "; ".join(f"{kind} {name!r}" for kind, name in odd[:5]) or f"version {version}"
        raise damage(path, f"its tables are not those that daceml makes, and might run something: {named}")
    return version


def _make_or_migrate(connection: sqlite3.Connection, path: Path) -> None:
    """All or nothing; a second process that comes at the same time waits, and finds it done."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        schema.upgrade(connection, _recognise(connection, path))
        connection.execute("COMMIT")
    except (
        ValueError,
        TypeError,
        RecursionError,
        EntryError,
    ) as error:  # a row of an older version that means nothing
        connection.execute("ROLLBACK")
        raise damage(path, f"it cannot be brought to version {schema.VERSION}: {error}") from error
    except BaseException:
        with contextlib.suppress(sqlite3.Error):
            connection.execute("ROLLBACK")
        raise


def use_write_ahead_log(connection: sqlite3.Connection, timeout_s: float) -> None:
    """From here on readers go on while somebody writes.

    Two that turn it on at a time would wait for each other: SQLite refuses one at once, which tries again.
    """
    until = time.monotonic() + timeout_s
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL").fetchone()
        except sqlite3.OperationalError:
            if time.monotonic() > until:
                raise
            time.sleep(0.01)
        else:
            return


def _operational(path: Path, error: sqlite3.OperationalError) -> DatabaseAccessError | DatabaseDamageError:
    text = str(error)
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF  # none where Python itself could not read a text
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return DatabaseAccessError(
            "the operation database stayed locked by another writer",
            where=str(path),
            why=text,
            fix="try again, or open it with a larger timeout_s; nothing of this call was written",
        )
    if code in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_IOERR):
        writable = os.access(path.parent, os.W_OK)
        return DatabaseAccessError(
            "the operation database cannot be written",
            where=str(path),
            why=text if writable else f"{text}; its folder is not writable",
            fix="check permissions and room of its folder: SQLite keeps two more files in that folder",
        )
    return damage(path, text)
