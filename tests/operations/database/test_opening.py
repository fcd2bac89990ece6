"""Files that somebody else may have written: taken only where nothing in them can run."""

from __future__ import annotations

import os
import random
import sqlite3
import threading
from pathlib import Path

import pytest

from daceml.errors import DatabaseAccessError, DatabaseDamageError, DatabaseFileError
from daceml.operations.database import schema
from daceml.operations.database.opening import use_write_ahead_log
from daceml.operations.database.store import OpDatabase
from tests.operations.database.entries import entry, numbered
from tests.support.golden import raises


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ops.db"


def manipulated(path: Path, *statements: str) -> None:
    """A database with a row, in which somebody else then ran something."""
    with OpDatabase(path) as database:
        database.add(entry())
    plain = sqlite3.connect(path, isolation_level=None)
    plain.execute("PRAGMA writable_schema = ON")
    for statement in statements:
        plain.execute(statement)
    plain.close()


def test_the_file_says_whose_it_is(path: Path):
    with OpDatabase(path):
        pass
    head = path.read_bytes()[:100]
    assert head[:16] == b"SQLite format 3\0"
    assert head[68:72] == b"dOps"
    assert int.from_bytes(head[60:64], "big") == schema.VERSION


def test_an_empty_file_becomes_a_database(path: Path):
    path.touch()
    with OpDatabase(path) as database:
        assert len(database) == 0


def test_another_programs_database_is_refused_and_left_as_it_is(path: Path):
    plain = sqlite3.connect(path)
    plain.execute("CREATE TABLE entries (secret)")
    plain.close()
    before = path.read_bytes()
    with raises(DatabaseFileError, path, "application_id", "0x0", "0x644f7073"):
        OpDatabase(path)
    assert path.read_bytes() == before
    assert sorted(os.listdir(path.parent)) == [path.name]


@pytest.mark.parametrize("content", [b"{}", b"PAR1" * 100, b"SQLite format 2\0" * 10, b"\0"])
def test_what_is_no_sqlite_file_is_refused(path: Path, content: bytes):
    path.write_bytes(content)
    with raises(DatabaseFileError, path, repr(content[:16])):
        OpDatabase(path)
    assert path.read_bytes() == content


def test_a_newer_file_is_refused_with_its_version(path: Path):
    manipulated(path, f"PRAGMA user_version = {schema.VERSION + 1}")
    with raises(DatabaseFileError, path, f"version {schema.VERSION + 1}", schema.VERSION):
        OpDatabase(path)


@pytest.mark.parametrize(
    ("statement", "named"),
    [
        ("CREATE TRIGGER t AFTER INSERT ON entries BEGIN DELETE FROM environments; END", "trigger 't'"),
        ("CREATE TRIGGER t BEFORE UPDATE ON entries BEGIN SELECT load_extension('x'); END", "trigger 't'"),
        ("CREATE TEMP TABLE x (y)", ""),
        ("CREATE VIEW v AS SELECT writefile('x', 'y')", "view 'v'"),
        ("CREATE INDEX i ON entries (abs(median_s))", "index 'i'"),
        ("ALTER TABLE entries ADD COLUMN more DEFAULT 5", "table 'entries'"),
        ("CREATE TABLE more (x)", "table 'more'"),
        ("DROP INDEX operations_by_family", "index 'operations_by_family'"),
        (
            "UPDATE sqlite_master SET sql = replace(sql, 'licence TEXT', 'licence TEXT CHECK (abs(1))')"
            " WHERE name = 'entries'",
            "table 'entries'",
        ),
    ],
)
def test_tables_that_somebody_changed_are_refused(path: Path, statement: str, named: str):
    manipulated(path, statement)
    if not named:  # it was gone with the connection
        OpDatabase(path).close()
        return
    with raises(DatabaseDamageError, path, named):
        OpDatabase(path)


def test_a_view_in_the_place_of_a_table_does_not_run(path: Path):
    manipulated(path, "ALTER TABLE entries RENAME TO kept", "CREATE VIEW entries AS SELECT * FROM kept")
    with raises(DatabaseDamageError, path, "table 'entries'"):
        OpDatabase(path)


def test_a_trigger_that_is_added_while_the_file_is_open_does_not_run(path: Path):
    with OpDatabase(path) as database:
        database.add(entry())
        plain = sqlite3.connect(path)
        plain.execute("CREATE TRIGGER t AFTER INSERT ON entries BEGIN DELETE FROM operands; END")
        plain.commit()
        with raises(DatabaseFileError, path, "SQLite", "trigger", exact=False):  # SQLite says why
            database.add(entry(source="you"))
        assert plain.execute("SELECT count(*) FROM operands").fetchone() == (2,)
        plain.close()


def test_statistics_of_sqlite_are_no_manipulation(path: Path):
    manipulated(path, "ANALYZE")
    with OpDatabase(path) as database:
        assert database.verify() == 1


def test_opening_waits_for_a_reader_of_the_old_kind(path: Path):
    """Until the write-ahead log is on, a reader keeps everybody else from turning it on."""
    manipulated(path, "PRAGMA journal_mode = DELETE")
    reader = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM entries").fetchone()
    done = threading.Timer(0.3, lambda: reader.execute("COMMIT"))
    done.start()
    with OpDatabase(path, timeout_s=30) as database:
        assert len(database) == 1
    done.join()
    reader.close()


def test_two_that_turn_on_the_log_at_a_time_do_not_fail():
    class Contended:
        tries = 0

        def execute(self, _: str) -> Contended:
            self.tries += 1
            if self.tries < 3:
                raise sqlite3.OperationalError("database is locked")
            return self

        def fetchone(self) -> None: ...

    connection = Contended()
    use_write_ahead_log(connection, 30)  # pyright: ignore[reportArgumentType]
    assert connection.tries == 3
    connection.tries = -(10**9)
    with pytest.raises(sqlite3.OperationalError):
        use_write_ahead_log(connection, 0)  # pyright: ignore[reportArgumentType]


def test_opening_does_not_wait_for_ever(path: Path):
    with raises(DatabaseAccessError, path, "timeout_s", exact=False):  # SQLite says why
        manipulated_and_read(path)


def manipulated_and_read(path: Path) -> None:
    """Open where a reader of the old kind does not end."""
    manipulated(path, "PRAGMA journal_mode = DELETE")
    reader = sqlite3.connect(path, isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM entries").fetchone()
    try:
        OpDatabase(path, timeout_s=0.05).close()
    finally:
        reader.close()


def test_a_missing_file_or_folder_is_named(path: Path):
    with raises(DatabaseAccessError, path, "create=True"):
        OpDatabase(path, create=False)
    assert not path.exists()
    with raises(DatabaseAccessError, path / "ops.db", "folder"):
        OpDatabase(path / "ops.db")
    with raises(DatabaseAccessError, path.parent, "Errno", exact=False):  # the system says why
        OpDatabase(path.parent)


@pytest.mark.parametrize("page", [1, 2, 5, 9])
def test_a_damaged_page_is_reported(path: Path, page: int):
    with OpDatabase(path) as database:
        database.add_all(numbered(0, 300))
    data = bytearray(path.read_bytes())
    start = 4096 * page
    data[start : start + 200] = b"\xa5" * 200
    path.write_bytes(data)
    damage = raises(DatabaseDamageError, path, "recover(path, export)", exact=False)  # SQLite says why
    with damage, OpDatabase(path) as database:
        database.verify()


def test_a_file_that_was_cut_short_is_noticed_at_once(path: Path):
    with OpDatabase(path) as database:
        database.add_all(numbered(0, 300))
    with path.open("rb+") as file:
        file.truncate(path.stat().st_size // 2)
    with pytest.raises(DatabaseDamageError):
        OpDatabase(path)


def test_random_damage_is_never_anything_but_an_error_of_ours(path: Path, tmp_path: Path):
    with OpDatabase(path) as database:
        database.add_all(numbered(0, 40))
        whole = list(database.entries())
    data, draw = path.read_bytes(), random.Random(7)
    noticed = 0
    for _ in range(150):
        wrong = bytearray(data)
        for _ in range(draw.choice([1, 4, 64])):
            wrong[draw.randrange(len(wrong))] = draw.randrange(256)
        path.write_bytes(wrong)
        try:
            with OpDatabase(path) as database:
                database.verify()
                found = list(database.entries())
        except (DatabaseFileError, DatabaseAccessError):
            noticed += 1
        else:
            assert found == whole
    assert noticed > 50
