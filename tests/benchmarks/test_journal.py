"""Journals: what a stopped run knows, and files of other programs."""

from __future__ import annotations

from pathlib import Path

from benchmarks.journal import Journal, Row
from tests.support.golden import raises


def name_of(row: Row) -> str:
    return row["name"]


def test_rows_are_there_again_and_the_last_of_a_key_counts(tmp_path: Path):
    file = tmp_path / "rows" / "journal.jsonl"
    journal = Journal(file, name_of)
    for row in ({"name": "a", "n": 1}, {"name": "b", "n": 2}, {"name": "a", "n": 3}):
        journal.add(row)
    with file.open("a", encoding="utf-8") as stream:
        stream.write('{"name": "c", ')  # killed while it wrote
    again = Journal(file, name_of)
    assert again.rows == {"a": {"name": "a", "n": 3}, "b": {"name": "b", "n": 2}}
    again.forget(["a"])
    assert Journal(file, name_of).rows == {"b": {"name": "b", "n": 2}}


def test_a_journal_of_another_program_is_refused(tmp_path: Path):
    file = tmp_path / "journal.jsonl"
    file.write_text('{"case": "test_relu"}\n', encoding="utf-8")
    with raises(ValueError, file, "'name'"):
        Journal(file, name_of)
