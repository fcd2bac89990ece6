"""What is known of cases: one row for each form of a case."""

from __future__ import annotations

from pathlib import Path

from benchmarks import journal
from benchmarks.journal import Row

Key = tuple[str, str, str, str]


def key_of(row: Row) -> Key:
    """Kind, name, implementation and mode."""
    return row["kind"], row["case"], row["implementation"], row["mode"]


class Journal(journal.Journal[Key]):
    """Rows by form."""

    def __init__(self, file: Path) -> None:
        super().__init__(file, key_of)


__all__ = ["Journal", "Key", "Row", "key_of"]
