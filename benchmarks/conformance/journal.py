"""What is known of cases, one line of JSON each: a run that was stopped goes on where it was."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

Row = dict[str, Any]
Key = tuple[str, str, str, str]


def key_of(row: Row) -> Key:
    """Kind, name, implementation and mode."""
    return row["kind"], row["case"], row["implementation"], row["mode"]


class Journal:
    """Rows by key; every row is on disk before the next case begins.

    Args:
        file: made when the first row comes; rows that are in it already are read, the last of a key counts.
    """

    def __init__(self, file: Path) -> None:
        self.file = file
        self.rows: dict[Key, Row] = {}
        if file.is_file():
            for line in file.read_text(encoding="utf-8").splitlines():
                try:
                    row = json.loads(line)
                except ValueError:  # the last line of a run that was killed
                    continue
                self.rows[key_of(row)] = row

    def forget(self, keys: Iterable[Key]) -> None:
        """Drop rows that are to be measured again."""
        for key in keys:
            self.rows.pop(key, None)
        if self.file.is_file():
            self.file.write_text("".join(_line(row) for row in self.rows.values()), encoding="utf-8")

    def add(self, row: Row) -> None:
        """Keep a row, here and on disk."""
        self.rows[key_of(row)] = row
        self.file.parent.mkdir(parents=True, exist_ok=True)
        with self.file.open("a", encoding="utf-8") as stream:
            stream.write(_line(row))


def _line(row: Row) -> str:
    return json.dumps(row, ensure_ascii=False) + "\n"
