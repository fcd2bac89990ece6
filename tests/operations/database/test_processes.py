"""Several processes at one database, and one that is killed: real processes, as the benchmark has them."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.prediction import database as benchmark
from benchmarks.prediction.writer import rows_of
from daceml.operations.database.store import OpDatabase


def test_two_processes_that_write_at_a_time_lose_no_row(tmp_path: Path):
    row = benchmark.two_writers(tmp_path, 1000, rows_per_commit=20)
    assert (row["rows_lost"], row["failed"]) == (0, 0)


def test_two_processes_make_the_same_file_at_a_time(tmp_path: Path):
    for attempt in range(3):
        (tmp_path / str(attempt)).mkdir()
        row = benchmark.two_writers(tmp_path / str(attempt), 2, rows_per_commit=1)
        assert (row["rows_lost"], row["failed"]) == (0, 0)


@pytest.mark.parametrize("after", [100, 700])
def test_a_killed_writer_loses_at_most_its_open_transaction(tmp_path: Path, after: int):
    row = benchmark.killed_writer(tmp_path, 10_000, after=after)
    assert row["was_writing"], "it was not killed in the middle"
    assert row["rows_there"] >= row["rows_said"] >= after
    assert row["rows_of_a_broken_lot"] == 0


def test_the_log_of_a_killed_writer_is_read_and_others_go_on(tmp_path: Path):
    benchmark.killed_writer(tmp_path, 10_000, after=100)
    with OpDatabase(tmp_path / "killed-100.db", create=False) as database:
        before = len(database)
        database.add_all(rows_of("another", 10))
        assert database.verify() == before + 10


def test_every_malicious_file_of_the_benchmark_is_refused(tmp_path: Path):
    for number in range(len(benchmark.MALICIOUS)):
        row = benchmark.foreign_file(tmp_path, number)
        assert row["refused"] and row["operations_lost"] == 0


def test_bars_are_missed_where_something_is_lost():
    two = {"rows_lost": 1, "failed": 0, "rows_per_s": 1.0}
    killed = {"was_writing": True, "rows_lost": 0, "rows_of_a_broken_lot": 3}
    damaged = {"reported": "", "rows_missing": 0, "damaged_file_kept": False}
    foreign = {"refused": "", "operations_lost": 0}
    assert [bar.met for bar in benchmark.bars(two, [killed], damaged, [foreign])] == [False] * 5
    late = {**killed, "was_writing": False}
    assert benchmark.bars(two, [late], damaged, [foreign])[1].figure is None
