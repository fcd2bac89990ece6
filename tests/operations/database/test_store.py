"""The database: what is written is there, once, and found again in one order."""

from __future__ import annotations

import os
import random
import sqlite3
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from daceml.errors import DatabaseAccessError, DatabaseDamageError, EntryError
from daceml.operations.database.records import Duration, Entry, Operand, Operation
from daceml.operations.database.store import OpDatabase, Written
from tests.operations.database.entries import EVERYTHING, VARIED, entry, matmul, numbered
from tests.support.golden import raises


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ops.db"


def test_what_is_written_comes_back_as_it_was(path: Path):
    with OpDatabase(path) as database:
        assert database.add_all(VARIED) == Written(added=4)
    with OpDatabase(path, create=False) as database:
        assert len(database) == 4
        assert database.find(EVERYTHING.operation) == (EVERYTHING,)
        kinds = {name: type(value) for name, value in EVERYTHING.operation.attributes.items()}
        (back,) = database.find(EVERYTHING.operation)
        assert {name: type(value) for name, value in back.operation.attributes.items()} == kinds
        assert database.verify() == 4


def test_the_same_measurement_again_is_no_second_row(path: Path):
    with OpDatabase(path) as database:
        assert database.add(entry(seconds=1.0)) == Written(added=1)
        assert database.add(entry(seconds=2.0, date="2026-11-24")) == Written(replaced=1)
        assert [e.duration.median_s for e in database.entries()] == [2.0]


def test_an_older_measurement_does_not_take_the_place_of_a_newer_one(path: Path):
    with OpDatabase(path) as database:
        database.add(entry(seconds=2.0, date="2026-11-24T05:45:00Z"))
        # as a text it is larger, as a moment it is earlier
        assert database.add(entry(seconds=1.0, date="2026-11-24T07:00:00+02:00")) == Written(kept=1)
        assert [e.duration.median_s for e in database.entries()] == [2.0]


def test_of_one_date_the_row_written_last_stays(path: Path):
    with OpDatabase(path) as database:
        database.add(entry(seconds=1e3))  # milliseconds taken for seconds
        assert database.add(entry(seconds=1.0)) == Written(replaced=1)
        assert [e.duration.median_s for e in database.entries()] == [1.0]


def test_files_give_the_same_in_whatever_order_they_are_merged(tmp_path: Path):
    rows = [entry(seconds=float(day), date=f"2026-11-{day:02}") for day in range(1, 8)] + numbered(0, 5)
    found = []
    for seed in range(3):
        random.Random(seed).shuffle(rows)
        with OpDatabase(tmp_path / f"{seed}.db") as database:
            database.add_all(rows, rows_per_commit=3)
            found.append(list(database.entries()))
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize(
    "other",
    [
        replace(entry(), source="you"),
        replace(entry(), provenance="imported"),
        replace(entry(), duration=Duration(median_s=1.0, mode="graph")),
        entry(device="A30"),
        entry(matmul(transposed=True)),
        entry(replace(matmul(), direction="backward")),
        entry(replace(matmul(), kernel="k")),
        entry(
            Operation(operator="aten::mm", operands=(Operand(shape=(8, 4), dtype="float32", layout=(1, 8)),))
        ),
    ],
)
def test_what_differs_in_anything_but_figures_is_another_row(path: Path, other: object):
    with OpDatabase(path) as database:
        database.add(entry())
        assert database.add(other) == Written(added=1)  # pyright: ignore[reportArgumentType]


def test_a_lot_with_a_row_that_means_nothing_is_not_written_at_all(path: Path):
    rows = numbered(0, 5)
    rows[3] = entry(seconds=float("nan"))
    with OpDatabase(path) as database:
        with pytest.raises(EntryError):
            database.add_all(rows, rows_per_commit=2)
        assert len(database) == 2
        with pytest.raises(EntryError):
            database.add_all(rows[2:], rows_per_commit=None)
        assert len(database) == 2


def test_rows_are_chosen_by_operator_device_type_mode_and_provenance(path: Path):
    with OpDatabase(path) as database:
        database.add_all(VARIED)
        chosen = {
            "all": list(database.entries()),
            "operator": list(database.entries(operator="Conv")),
            "device": list(database.entries(device="H100")),
            "type": list(database.entries(dtype="int64")),
            "mode": list(database.entries(mode="graph")),
            "provenance": list(database.entries(provenance="imported")),
            "both": list(database.entries(operator="aten::mm", device="A100")),
            "none": list(database.entries(operator="Conv", device="H100")),
        }
    assert {name: len(found) for name, found in chosen.items()} == {
        **{"all": 4, "operator": 1, "device": 1, "type": 1, "mode": 1, "provenance": 1, "both": 2, "none": 0}
    }
    assert chosen["type"] == [EVERYTHING]


def test_rows_come_in_one_order_however_they_were_written(tmp_path: Path):
    rows = numbered(0, 1200)
    orders = []
    for name, given in (("a", rows), ("b", rows[::-1])):
        with OpDatabase(tmp_path / name) as database:
            database.add_all(given)
            orders.append([e.operation.operands[0].shape[0] for e in database.entries()])
    assert orders[0] == orders[1]
    assert sorted(orders[0]) == list(range(1, 1201))


def test_measured_rows_come_before_imported_and_predicted_ones_and_later_before_earlier(path: Path):
    rows = [
        replace(entry(source=f"{provenance} {day}", date=f"2026-11-{day}"), provenance=provenance)
        for provenance in ("predicted", "imported", "measured")
        for day in (20, 21)
    ]
    with OpDatabase(path) as database:
        database.add_all(rows)  # pyright: ignore[reportArgumentType]
        found = [e.source for e in database.find(matmul())]
        assert found == [f"{p} {day}" for p in ("measured", "imported", "predicted") for day in (21, 20)]
        assert database.find(matmul(), device="H100") == ()
        assert database.find(matmul(), mode="cold") == ()
        assert database.find(matmul(m=7)) == ()


def test_the_nearest_rows_are_those_of_like_sizes(path: Path):
    sizes = (1, 2, 4, 9, 1000)
    with OpDatabase(path) as database:
        database.add_all([entry(matmul(m=m)) for m in sizes])
        database.add_all([entry(matmul(m=8, dtype="float16")), entry(matmul(m=8, transposed=True))])
        database.add(
            entry(Operation(operator="aten::mm", operands=(Operand(shape=(8,), dtype="float32"),) * 2))
        )
        found = database.nearest(matmul(m=8), k=3)
        assert [n.entry.operation.operands[0].shape[0] for n in found] == [9, 4, 2]
        assert found[1].distance == pytest.approx(0.6931471805599453)
        assert database.nearest(matmul(m=9), k=1)[0].distance == 0
        assert len(database.nearest(matmul(m=8), k=99)) == len(sizes)
        assert database.nearest(matmul(m=8), k=0) == ()
        assert database.nearest(matmul(m=8), device="H100") == ()


def test_the_nearest_of_an_operation_without_operands_are_its_own_rows(path: Path):
    barrier = Operation(operator="nccl::barrier", operands=())
    with OpDatabase(path) as database:
        database.add_all([entry(barrier), entry()])
        assert [n.entry.operation for n in database.nearest(barrier)] == [barrier]


def test_neighbours_at_one_distance_come_in_one_order(tmp_path: Path):
    rows = [entry(matmul(), source=str(number)) for number in range(30)]
    orders = []
    for name, given in (("a", rows), ("b", rows[::-1])):
        with OpDatabase(tmp_path / name) as database:
            database.add_all(given)
            orders.append([n.entry.source for n in database.nearest(matmul(), k=7)])
    assert orders[0] == orders[1]


def test_the_tables_can_be_asked_in_sql(path: Path):
    with OpDatabase(path) as database:
        database.add_all(VARIED)
    with sqlite3.connect(path) as plain:
        found = plain.execute(
            "SELECT e.median_s, e.licence FROM entries AS e JOIN operands AS a ON a.operation = e.operation"
            " JOIN environments AS v ON v.digest = e.environment"
            " WHERE a.position = 0 AND a.dtype = 'float16' AND a.shape = '[8,4]' AND v.device = 'H100'"
        ).fetchall()
    plain.close()
    assert found == [(1e-3, "BSD-3-Clause")]


@pytest.mark.parametrize(
    ("column", "fact"),
    [
        ("median_s = 5", "checksum"),
        ("licence = 'MIT'", "checksum"),
        ("samples = 'x'", "samples"),
        ("date = '2026-11-25'", "checksum"),
    ],
)
def test_a_row_that_was_changed_by_hand_is_noticed(path: Path, column: str, fact: str):
    with OpDatabase(path) as database:
        database.add(entry())
    with sqlite3.connect(path) as plain:
        plain.execute(f"UPDATE entries SET {column}")
    plain.close()
    with OpDatabase(path) as database:
        for ask in (database.verify, lambda: list(database.entries()), lambda: database.find(matmul())):
            with raises(DatabaseDamageError, path, "row", fact):
                ask()


@pytest.mark.parametrize("text", ["{}", "[", "[" * 100_000, "null", '{"operator":1}'])
def test_a_text_that_is_no_operation_is_noticed(path: Path, text: str):
    with OpDatabase(path) as database:
        database.add(entry())
    with sqlite3.connect(path) as plain:
        plain.execute("UPDATE operations SET text = ?", [text])
    plain.close()
    with OpDatabase(path) as database, pytest.raises(DatabaseDamageError):
        database.verify()


def test_a_forked_process_has_to_open_the_database_itself(path: Path, monkeypatch: pytest.MonkeyPatch):
    with OpDatabase(path) as database:
        monkeypatch.setattr(os, "getpid", lambda: -1)
        with raises(DatabaseAccessError, path, "fork"):
            database.add(entry())
        monkeypatch.undo()


def test_another_thread_has_to_open_the_database_itself(path: Path):
    refused: list[DatabaseAccessError] = []

    def use(database: OpDatabase) -> None:
        try:
            database.add(entry())
        except DatabaseAccessError as error:
            refused.append(error)

    with OpDatabase(path) as database:
        thread = threading.Thread(target=use, args=[database])
        thread.start()
        thread.join(30)
        assert len(refused) == 1 and "thread" in refused[0].why
        assert len(database) == 0


def test_a_closed_database_says_so(path: Path):
    with OpDatabase(path) as database:
        pass
    with raises(DatabaseAccessError, path, "closed", "`with`", exact=False):  # SQLite says why
        database.add(entry())


def test_a_writer_that_waits_too_long_says_so_and_has_written_nothing(path: Path):
    with OpDatabase(path, timeout_s=0.05) as database:
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with raises(DatabaseAccessError, path, "timeout_s", exact=False):  # SQLite says why
            database.add(entry())
        other.execute("ROLLBACK")
        other.close()
        assert database.add(entry()) == Written(added=1)


def test_a_writer_has_the_lock_before_it_looks_for_its_rows(path: Path):
    """Else what it read might be out of date when it writes, and SQLite would refuse that without waiting."""

    def rows() -> Iterator[Entry]:
        assert database.find(matmul()) == ()
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            other.execute("BEGIN IMMEDIATE")
        yield entry()

    with OpDatabase(path) as database:
        other = sqlite3.connect(path, isolation_level=None, timeout=0)
        assert database.add_all(rows(), rows_per_commit=None) == Written(added=1)
        other.close()


def test_readers_do_not_wait_for_a_writer(path: Path):
    with OpDatabase(path, timeout_s=0.05) as database:
        database.add(entry())
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        other.execute("DELETE FROM entries")
        assert len(list(database.entries())) == 1
        other.execute("ROLLBACK")
        other.close()
