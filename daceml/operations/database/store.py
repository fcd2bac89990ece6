"""The database: one SQLite file of rows, for many readers and writers at a time."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from daceml.errors import DatabaseAccessError
from daceml.operations.database import opening
from daceml.operations.database.canonical import environment_text
from daceml.operations.database.lookup import Neighbour, Selection, distances
from daceml.operations.database.records import Entry, Mode, Operation, Provenance
from daceml.operations.database.rows import (
    COLUMNS,
    SELECTED,
    entry_of_row,
    entry_values,
    environment_row,
    operation_row,
)
from daceml.operations.database.validation import check_entry, check_operation

_AT_A_TIME = 1000
_PER_QUERY = 500  # SQLite before 3.32 takes 999 parameters
_JOINED = (
    "FROM entries AS e JOIN operations AS o ON o.digest = e.operation"
    " JOIN environments AS v ON v.digest = e.environment"
)
_ADD_ENTRY = (
    f"INSERT INTO entries ({', '.join(COLUMNS)}) VALUES ({', '.join('?' * len(COLUMNS))})"
    f" ON CONFLICT (key) DO UPDATE SET {', '.join(f'{name} = excluded.{name}' for name in COLUMNS[1:])}"
    " WHERE excluded.instant_us >= entries.instant_us"
)


@dataclass(frozen=True, kw_only=True)
class Written:
    """What became of rows that were given to the database.

    Attributes:
        added: that it did not have.
        replaced: that took the place of the same measurement of an earlier or the same date.
        kept: that were not taken, because the database has the same measurement of a later date.
    """

    added: int = 0
    replaced: int = 0
    kept: int = 0

    def __add__(self, other: Written) -> Written:
        return Written(
            added=self.added + other.added,
            replaced=self.replaced + other.replaced,
            kept=self.kept + other.kept,
        )


class OpDatabase:
    """Durations of operations in one file; a context manager, for one thread of one process.

    A row is known by what was measured, where, in which mode, with which provenance and by which source. The
    same measurement again takes the place of the one that is there, unless that has a later date: so the
    order in which files are merged does not matter. Of two with one date the one written last stays: a
    corrected import mends a faulty one.

    Args:
        path: of the file, which is made if there is none.
        create: False refuses where there is none.
        timeout_s: how long a writer waits for others.
        verify: whether the whole file is read through first; None: where there is reason to, as after a
            writer that did not close.
    Raises:
        DatabaseFileError: it is no such database, somebody changed its tables, or a newer daceml wrote it.
        DatabaseDamageError: it is damaged.
        DatabaseAccessError: it cannot be read or written.
    """

    def __init__(
        self, path: str | Path, *, create: bool = True, timeout_s: float = 60, verify: bool | None = None
    ) -> None:
        self.path = Path(path)
        self._process = os.getpid()
        self._connection = opening.connect(self.path, create=create, timeout_s=timeout_s, verify=verify)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Every call has ended its transaction, so nothing is left to be written."""
        if self._process == os.getpid():  # a child that closes its copy drops the parent's locks
            self._connection.close()

    def __len__(self) -> int:
        with self._use() as connection:
            return connection.execute("SELECT count(*) FROM entries").fetchone()[0]

    def add(self, entry: Entry) -> Written:
        """Write one row; it is on the disk when this returns.

        Raises:
            EntryError: it is no row that means something.
            DatabaseAccessError, DatabaseDamageError: it could not be written.
        """
        return self.add_all([entry])

    def add_all(self, entries: Iterable[Entry], *, rows_per_commit: int | None = 1000) -> Written:
        """Write rows, some at a time; each lot is written as a whole or not at all.

        Args:
            rows_per_commit: how many wait for each other; None: all of them.
        Raises:
            EntryError: a row is none; the lots before its own stay written.
            DatabaseAccessError, DatabaseDamageError: a lot could not be written.
        """
        lots = _lots(entries, _AT_A_TIME if rows_per_commit is None else rows_per_commit)
        written = Written()
        if rows_per_commit is None:
            with self._use() as connection, _transaction(connection):
                for lot in lots:
                    written += _add_lot(connection, lot)
            return written
        for lot in lots:
            with self._use() as connection, _transaction(connection):
                written += _add_lot(connection, lot)
        return written

    def entries(
        self,
        *,
        operator: str | None = None,
        device: str | None = None,
        dtype: str | None = None,
        mode: Mode | None = None,
        provenance: Provenance | None = None,
    ) -> Iterator[Entry]:
        """All rows, or those of one operator, one device, with an operand of one element type; by key.

        Rows that are written meanwhile are left out.
        """
        chosen = Selection(operator=operator, device=device, dtype=dtype, mode=mode, provenance=provenance)
        condition, values = chosen.condition()
        with self._use() as connection:
            query = f"SELECT e.key {_JOINED} WHERE {condition} ORDER BY e.key"
            keys = [key for (key,) in connection.execute(query, values)]
        for start in range(0, len(keys), _PER_QUERY):
            yield from self._of_keys(keys[start : start + _PER_QUERY])

    def find(
        self, operation: Operation, *, device: str | None = None, mode: Mode | None = None
    ) -> tuple[Entry, ...]:
        """Rows of exactly this operation: measured ones, then imported, then predicted; the latest first.

        Raises:
            EntryError: the operation is none that a database could have.
        """
        check_operation(operation)
        condition, values = Selection(device=device, mode=mode).condition()
        with self._use() as connection:
            rows = connection.execute(
                f"SELECT {SELECTED} {_JOINED} WHERE e.operation = ? AND {condition} ORDER BY"
                " CASE e.provenance WHEN 'measured' THEN 0 WHEN 'imported' THEN 1 ELSE 2 END,"
                " e.instant_us DESC, e.key",
                (operation_row(operation).digest, *values),
            ).fetchall()
        return tuple(map(self._entry, rows))

    def nearest(
        self, operation: Operation, *, k: int = 8, device: str | None = None, mode: Mode | None = None
    ) -> tuple[Neighbour, ...]:
        """The k rows whose sizes are closest, of the same operator, types, ranks, layouts and attributes.

        Ordered by distance (`lookup.distances`), then by key; the operation's own rows are at 0.

        Raises:
            EntryError: the operation is none that a database could have.
        """
        check_operation(operation)
        condition, values = Selection(device=device, mode=mode).condition()
        with self._use() as connection:
            values = [operation_row(operation).values[-1], *values]
            alike = f"{_JOINED} WHERE o.family = ? AND {condition}"
            keys = [key for (key,) in connection.execute(f"SELECT e.key {alike} ORDER BY e.key", values)]
            shapes = connection.execute(
                "SELECT n.shape FROM operands AS n JOIN"
                f" (SELECT e.key, e.operation {alike}) AS e ON n.operation = e.operation"
                " ORDER BY e.key, n.position",
                values,
            ).fetchall()
        try:
            apart = distances(operation, [shape for (shape,) in shapes], rows=len(keys))
        except ValueError as error:
            raise opening.damage(self.path, f"sizes of operands: {error}") from error
        closest = sorted(zip(apart, keys, strict=True))[: max(k, 0)]
        entries: dict[bytes, Entry] = {}
        for start in range(0, len(closest), _PER_QUERY):
            some = sorted(key for _, key in closest[start : start + _PER_QUERY])
            entries |= zip(some, self._of_keys(some), strict=True)
        return tuple(Neighbour(entry=entries[key], distance=distance) for distance, key in closest)

    def verify(self) -> int:
        """Read every page and every row, and return how many rows there are.

        Raises:
            DatabaseDamageError: a page or row is not as it was written.
        """
        with self._use() as connection:
            opening.check_pages(connection, self.path, thorough=True)
            if connection.execute("PRAGMA foreign_key_check").fetchone() is not None:
                raise opening.damage(self.path, "a row names an operation or environment that is not there")
        return sum(1 for _ in self.entries())

    def _of_keys(self, keys: list[bytes]) -> list[Entry]:
        places = ", ".join("?" * len(keys))
        with self._use() as connection:
            query = f"SELECT {SELECTED} {_JOINED} WHERE e.key IN ({places}) ORDER BY e.key"
            return [self._entry(row) for row in connection.execute(query, keys).fetchall()]

    def _entry(self, row: tuple[Any, ...]) -> Entry:
        try:
            return entry_of_row(row)
        except ValueError as error:
            raise opening.damage(self.path, f"row {row[0]!r}: {error}") from error

    @contextmanager
    def _use(self) -> Generator[sqlite3.Connection]:
        if self._process != os.getpid():
            raise DatabaseAccessError(
                "the database was opened by another process",
                where=str(self.path),
                why="a connection that a fork copies would damage the file",
                fix="open it in each process",
            )
        with opening.refusals(self.path):
            yield self._connection


def _lots(entries: Iterable[Entry], rows: int) -> Iterator[list[Entry]]:
    remaining = iter(entries)
    while lot := list(islice(remaining, max(rows, 1))):
        for entry in lot:
            check_entry(entry)
        yield lot


@contextmanager
def _transaction(connection: sqlite3.Connection) -> Generator[None]:
    # the lock first: two that read before they write would wait for each other
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        with suppress(sqlite3.Error):  # SQLite has rolled back itself, as where the disk is full
            connection.execute("ROLLBACK")
        raise


def _add_lot(connection: sqlite3.Connection, lot: list[Entry]) -> Written:
    environments = {id(entry.environment): environment_text(entry.environment) for entry in lot}
    operations = [operation_row(entry.operation) for entry in lot]
    connection.executemany(
        "INSERT OR IGNORE INTO environments VALUES (?, ?, ?, ?, ?)",
        [environment_row(text) for text in sorted(set(environments.values()))],
    )
    connection.executemany(
        "INSERT OR IGNORE INTO operations (digest, operator, direction, kernel, attributes, text, family)"
        " VALUES (?, ?, ?, ?, ?, ?, ?)",
        [row.values for row in operations],
    )
    connection.executemany(
        "INSERT OR IGNORE INTO operands VALUES (?, ?, ?, ?, ?)",
        [operand for row in operations for operand in row.operands],
    )
    values = [
        entry_values(entry, row, environments[id(entry.environment)])
        for entry, row in zip(lot, operations, strict=True)
    ]
    keys = list({row[0] for row in values})
    added = len(keys) - sum(
        _present(connection, keys[i : i + _PER_QUERY]) for i in range(0, len(keys), _PER_QUERY)
    )
    changes = connection.total_changes
    connection.executemany(_ADD_ENTRY, values)
    replaced = connection.total_changes - changes - added
    return Written(added=added, replaced=replaced, kept=len(lot) - added - replaced)


def _present(connection: sqlite3.Connection, keys: list[bytes]) -> int:
    places = ", ".join("?" * len(keys))
    return connection.execute(f"SELECT count(*) FROM entries WHERE key IN ({places})", keys).fetchone()[0]
