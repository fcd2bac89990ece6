"""The results of a first run: one line of JSON each, on disk before the next cell begins.

Several processes append rows at once, and none reads those of the others: no `benchmarks.journal.Journal`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

Row = dict[str, Any]


def add_row(file: Path, row: Row) -> None:
    """Append a row; several processes may do so at once."""
    line = json.dumps(row, ensure_ascii=False) + "\n"
    handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        os.write(handle, line.encode())
        os.fsync(handle)
    finally:
        os.close(handle)


def read_rows(file: Path) -> list[Row]:
    """All rows; the last line of a process that was killed may be half a row, which is left out."""
    if not file.is_file():
        return []
    return list(_rows(file.read_text(encoding="utf-8").splitlines()))


def is_wrong(row: Row) -> bool:
    """Whether a cell failed, or found something that is not as it has to be."""
    return bool(row.get("failure") or row.get("outside"))


def _rows(lines: Iterable[str]) -> Iterable[Row]:
    for line in lines:
        try:
            yield json.loads(line)
        except ValueError:
            continue
