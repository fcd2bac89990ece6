"""Rows that are known already, one line of JSON each: a run that was stopped goes on where it was."""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Iterable
from pathlib import Path
from typing import Any, Generic, TypeVar

Row = dict[str, Any]
K = TypeVar("K", bound=Hashable)


class Journal(Generic[K]):
    """Rows by key; every row is on disk before the next case begins.

    Args:
        file: made when the first row comes; rows that are in it already are read, the last of a key counts.
        key: of a row.
    Raises:
        ValueError: the file has rows of another program.
    """

    def __init__(self, file: Path, key: Callable[[Row], K]) -> None:
        self.file, self.key = file, key
        self.rows: dict[K, Row] = {}
        if file.is_file():
            for line in file.read_text(encoding="utf-8").splitlines():
                try:
                    row = json.loads(line)
                except ValueError:  # the last line of a run that was killed
                    continue
                try:
                    self.rows[key(row)] = row
                except (KeyError, TypeError) as error:
                    why = f"{error} is missing in {line[:80]}"
                    raise ValueError(
                        f"{file} is another program's journal: {why}; give another file"
                    ) from error

    def forget(self, keys: Iterable[K]) -> None:
        """Drop rows that are to be measured again."""
        for key in keys:
            self.rows.pop(key, None)
        if self.file.is_file():
            self.file.write_text("".join(_line(row) for row in self.rows.values()), encoding="utf-8")

    def add(self, row: Row) -> None:
        """Keep a row, here and on disk."""
        self.rows[self.key(row)] = row
        self.file.parent.mkdir(parents=True, exist_ok=True)
        with self.file.open("a", encoding="utf-8") as stream:
            stream.write(_line(row))


def _line(row: Row) -> str:
    return json.dumps(row, ensure_ascii=False) + "\n"
