"""Tables, version by version: a file of an older daceml is brought up to date, whole or not at all."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from daceml.errors import DatabaseDamageError
from daceml.operations.database import rows, schema
from daceml.operations.database.canonical import environment_text
from daceml.operations.database.store import OpDatabase, Written
from tests.operations.database.entries import VARIED, entry, matmul
from tests.support.golden import raises


def first_version(path: Path) -> None:
    """A file as version 1 wrote it: without families, and without moments beside the dates."""
    plain = sqlite3.connect(path, isolation_level=None)
    plain.execute("BEGIN")
    schema.upgrade(plain, 0, to=1)
    for one in VARIED:
        operation = rows.operation_row(one.operation)
        environment = environment_text(one.environment)
        plain.execute(
            "INSERT OR IGNORE INTO environments VALUES (?,?,?,?,?)", rows.environment_row(environment)
        )
        plain.execute("INSERT OR IGNORE INTO operations VALUES (?,?,?,?,?,?)", operation.values[:-1])
        plain.executemany("INSERT OR IGNORE INTO operands VALUES (?,?,?,?,?)", operation.operands)
        values = rows.entry_values(one, operation, environment)[:-1]
        plain.execute(f"INSERT INTO entries VALUES ({','.join('?' * len(values))})", values)
    plain.execute("COMMIT")
    plain.close()


def version(path: Path) -> int:
    plain = sqlite3.connect(path)
    found = plain.execute("PRAGMA user_version").fetchone()[0]
    plain.close()
    return found


def test_a_file_of_version_1_is_migrated_with_all_its_rows(tmp_path: Path):
    path = tmp_path / "old.db"
    first_version(path)
    assert version(path) == 1
    with OpDatabase(path, create=False) as database:
        assert database.verify() == len(VARIED)
        assert {rows.content_key(e): e for e in database.entries()} == {
            rows.content_key(e): e for e in VARIED
        }
        assert len(database.nearest(matmul(m=10))) == 2, "families are known"
        older = entry(date="2026-11-22T23:59:59Z")
        assert database.add(older) == Written(kept=1), "moments are known"
    assert version(path) == schema.VERSION


def test_a_migrated_file_has_the_tables_of_a_new_one(tmp_path: Path):
    first_version(tmp_path / "old.db")
    for name in ("old.db", "new.db"):
        OpDatabase(tmp_path / name).close()
    plain = [sqlite3.connect(tmp_path / name) for name in ("old.db", "new.db")]
    assert schema.objects(plain[0]) == schema.objects(plain[1])
    for connection in plain:
        connection.close()


def test_a_migration_that_fails_leaves_the_old_file(tmp_path: Path):
    path = tmp_path / "old.db"
    first_version(path)
    plain = sqlite3.connect(path)
    plain.execute("UPDATE entries SET date = 'soon'")
    plain.commit()
    plain.close()
    # Python says what is wrong with the date
    with raises(DatabaseDamageError, path, f"version {schema.VERSION}", "'soon'", exact=False):
        OpDatabase(path)
    assert version(path) == 1


def test_a_manipulated_file_of_version_1_is_refused_before_it_is_migrated(tmp_path: Path):
    path = tmp_path / "old.db"
    first_version(path)
    plain = sqlite3.connect(path)
    plain.execute("CREATE TRIGGER t AFTER UPDATE ON entries BEGIN DELETE FROM operands; END")
    plain.commit()
    plain.close()
    with raises(DatabaseDamageError, path, "trigger 't'"):
        OpDatabase(path)
    assert version(path) == 1
