"""Tables of the database, version by version: each step makes the next version of the one before.

A new file goes through all steps, so that it has the very schema of one that was migrated.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from functools import cache

from daceml.operations.database.canonical import digest, family_text, operation_of
from daceml.operations.database.validation import instant_us

# "dOps": by this, `file` and SQLite tell our files from others'
APPLICATION_ID = 0x644F7073

# Everything that a row says of an operation is in its text; the other columns are for queries.
_FIRST = (
    """CREATE TABLE operations (
        digest BLOB PRIMARY KEY, operator TEXT NOT NULL, direction TEXT NOT NULL, kernel TEXT NOT NULL,
        attributes TEXT NOT NULL, text TEXT NOT NULL
    ) WITHOUT ROWID""",
    "CREATE INDEX operations_by_operator ON operations (operator)",
    """CREATE TABLE operands (
        operation BLOB NOT NULL REFERENCES operations, position INTEGER NOT NULL,
        dtype TEXT NOT NULL, shape TEXT NOT NULL, layout TEXT NOT NULL,
        PRIMARY KEY (operation, position)
    ) WITHOUT ROWID""",
    """CREATE TABLE environments (
        digest BLOB PRIMARY KEY, device TEXT NOT NULL, fingerprint TEXT NOT NULL, software TEXT NOT NULL,
        text TEXT NOT NULL
    ) WITHOUT ROWID""",
    "CREATE INDEX environments_by_device ON environments (device)",
    """CREATE TABLE entries (
        key BLOB PRIMARY KEY, operation BLOB NOT NULL REFERENCES operations,
        environment BLOB NOT NULL REFERENCES environments, mode TEXT NOT NULL, provenance TEXT NOT NULL,
        source TEXT NOT NULL, licence TEXT NOT NULL, date TEXT NOT NULL, median_s REAL NOT NULL,
        samples INTEGER NOT NULL, mad_s REAL, p10_s REAL, p90_s REAL, checksum BLOB NOT NULL
    ) WITHOUT ROWID""",
    "CREATE INDEX entries_by_operation ON entries (operation, environment)",
)


def _first(connection: sqlite3.Connection) -> None:
    for statement in _FIRST:
        connection.execute(statement)


def _second(connection: sqlite3.Connection) -> None:
    """Operations of one family are found by an index; dates are compared as moments, not as texts."""
    connection.execute("ALTER TABLE operations ADD COLUMN family BLOB NOT NULL DEFAULT x''")
    connection.execute("ALTER TABLE entries ADD COLUMN instant_us INTEGER NOT NULL DEFAULT 0")
    connection.execute("CREATE INDEX operations_by_family ON operations (family)")
    families = [
        (digest(family_text(operation_of(json.loads(text)))), of)
        for of, text in connection.execute("SELECT digest, text FROM operations")
    ]
    connection.executemany("UPDATE operations SET family = ? WHERE digest = ?", families)
    instants = [(instant_us(date), key) for key, date in connection.execute("SELECT key, date FROM entries")]
    connection.executemany("UPDATE entries SET instant_us = ? WHERE key = ?", instants)


STEPS: tuple[Callable[[sqlite3.Connection], None], ...] = (_first, _second)
VERSION = len(STEPS)


def upgrade(connection: sqlite3.Connection, version: int, *, to: int = VERSION) -> None:
    """Bring tables of `version` up to another one; 0 has none. Inside the caller's transaction.

    Raises:
        ValueError, TypeError, RecursionError, EntryError: a row of an older version is damaged.
    """
    for step in STEPS[version:to]:
        step(connection)
    # pragmas take no parameters
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID:d}")
    connection.execute(f"PRAGMA user_version = {to:d}")


def objects(connection: sqlite3.Connection) -> dict[tuple[str, str], str]:
    """(kind, name) -> text of every table, index, view and trigger, but for those that SQLite adds itself."""
    found = connection.execute("SELECT type, name, coalesce(sql, '') FROM sqlite_master")
    return {
        (kind, name): " ".join(sql.split())
        for kind, name, sql in found
        # an index of a primary key, and what ANALYZE counted
        if not (name.startswith(("sqlite_autoindex_", "sqlite_stat")) and kind in ("index", "table"))
    }


@cache
def expected_objects(version: int) -> dict[tuple[str, str], str]:
    """What `objects` says of a file of this version."""
    connection = sqlite3.connect(":memory:")
    try:
        upgrade(connection, 0, to=version)
        return objects(connection)
    finally:
        connection.close()
