"""What the database of operations promises: nothing is lost, damage is noticed, nothing in a file runs."""

from __future__ import annotations

import random
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from benchmarks.bars import Bar
from benchmarks.prediction.writer import rows_of
from daceml.errors import DacemlError, DatabaseDamageError, DatabaseFileError
from daceml.operations.database.json_lines import export_json_lines
from daceml.operations.database.recovery import recover
from daceml.operations.database.store import OpDatabase

ROWS, QUICK_ROWS = 10_000, 1_000
KILLS, QUICK_KILLS = 10, 2
_LIMIT_S = 300

# what a file could hold that SQLite runs, each beside the table it is about
MALICIOUS = (
    "CREATE TRIGGER t AFTER INSERT ON entries BEGIN DELETE FROM operations; END",
    "CREATE TRIGGER t BEFORE INSERT ON environments BEGIN SELECT load_extension('x'); END",
    "CREATE VIEW v AS SELECT * FROM entries",
    "CREATE INDEX i ON entries (abs(median_s))",
    "ALTER TABLE entries RENAME TO e; CREATE VIEW entries AS SELECT * FROM e",
    "ALTER TABLE operations ADD COLUMN more DEFAULT 1",
)


def two_writers(folder: Path, rows: int, *, rows_per_commit: int = 500) -> dict[str, Any]:
    """Two processes write at a time; how many of their rows are there afterwards."""
    path = folder / "two.db"
    with _writing(path, "a", rows, rows_per_commit) as a, _writing(path, "b", rows, rows_per_commit) as b:
        began = time.perf_counter()
        for process in (a, b):
            _go(process)
        ends = [process.wait(_LIMIT_S) for process in (a, b)]
        took_s = time.perf_counter() - began
    with OpDatabase(path, create=False) as database:
        there = database.verify()
    return {
        "case": "two writers",
        "rows_written": 2 * rows,
        "rows_lost": 2 * rows - there,
        "failed": sum(end != 0 for end in ends),
        "rows_per_s": 2 * rows / took_s,
    }


def killed_writer(folder: Path, rows: int, *, after: int, rows_per_commit: int = 100) -> dict[str, Any]:
    """A writer is killed once it has said `after` rows; what it said is there, and no part of a lot is."""
    path = folder / f"killed-{after}.db"
    with _writing(path, "a", rows, rows_per_commit) as process:
        _go(process)
        said = 0
        for line in _lines(process.stdout):
            said = int(line)
            if said >= after:
                break
        # somewhere in the next transaction
        time.sleep(random.Random(after).uniform(0, 0.02))
        process.kill()
        process.wait(_LIMIT_S)
        said = max([said, *map(int, _lines(process.stdout))])
    with OpDatabase(path, create=False) as database:
        there = database.verify()
    return {
        "case": "killed writer",
        "rows_said": said,
        "rows_there": there,
        "rows_lost": max(said - there, 0),
        "rows_of_a_broken_lot": there % rows_per_commit,
        "was_writing": said < rows,
    }


def damaged_file(folder: Path, rows: int) -> dict[str, Any]:
    """A file is damaged in the middle; whether that is reported, and an export brings all rows back."""
    path, export = folder / "damaged.db", folder / "export.jsonl"
    with OpDatabase(path) as database:
        database.add_all(rows_of("a", rows))
        whole = list(database.entries())
        export_json_lines(database, export)
    data = bytearray(path.read_bytes())
    data[len(data) // 2 : len(data) // 2 + 4096] = bytes(4096)
    path.write_bytes(data)
    try:
        with OpDatabase(path) as database:
            database.verify()
        reported = ""
    except DatabaseDamageError as error:
        reported = f"{error.code} {error.what}"
    recovered = recover(path, export)
    kept = recovered.damaged is not None and recovered.damaged.read_bytes() == bytes(data)
    with OpDatabase(path, create=False) as database:
        missing = sum(a != b for a, b in zip(whole, database.entries(), strict=True))
    return {"case": "damaged file", "reported": reported, "rows_missing": missing, "damaged_file_kept": kept}


def foreign_file(folder: Path, number: int) -> dict[str, Any]:
    """A file in which somebody put what SQLite would run; whether it is taken, and what ran."""
    path = folder / f"foreign-{number}.db"
    with OpDatabase(path) as database:
        database.add_all(rows_of("a", 3))
    plain = sqlite3.connect(path)
    plain.executescript(MALICIOUS[number])
    plain.close()
    try:
        with OpDatabase(path) as database:
            database.add_all(rows_of("b", 3))
        refused = ""
    except DatabaseFileError as error:
        refused = error.why
    plain = sqlite3.connect(path)
    left = plain.execute("SELECT count(*) FROM operations").fetchone()[0]
    plain.close()
    return {
        "case": "foreign file",
        "holds": MALICIOUS[number],
        "refused": refused,
        "operations_lost": 3 - left,
    }


def write_speed(folder: Path, rows: int) -> dict[str, Any]:
    """Rows that one process writes in a second, 1000 a commit."""
    made = rows_of("a", rows)
    with OpDatabase(folder / "speed.db") as database:
        began = time.perf_counter()
        database.add_all(made)
        return {"case": "write speed", "rows": rows, "rows_per_s": rows / (time.perf_counter() - began)}


def measure(*, quick: bool) -> tuple[list[dict[str, Any]], list[Bar]]:
    """Rows and bars of the database."""
    rows = QUICK_ROWS if quick else ROWS
    with tempfile.TemporaryDirectory(prefix="daceml-database-") as name:
        folder = Path(name)
        kills = QUICK_KILLS if quick else KILLS
        killed = [killed_writer(folder, ROWS, after=100 * (3 * kill + 1)) for kill in range(kills)]
        two, damaged = two_writers(folder, rows), damaged_file(folder, rows)
        foreign = [foreign_file(folder, number) for number in range(len(MALICIOUS))]
        speed = write_speed(folder, rows)
    return [two, *killed, damaged, *foreign, speed], bars(two, killed, damaged, foreign)


def bars(
    two: dict[str, Any],
    killed: Sequence[dict[str, Any]],
    damaged: dict[str, Any],
    foreign: Sequence[dict[str, Any]],
) -> list[Bar]:
    """The promises, of what was seen."""
    in_time = [row for row in killed if row["was_writing"]]
    speed = f"{two['rows_per_s']:.0f} rows/s together"
    return [
        Bar(
            name="database: rows lost of two writers",
            figure=two["rows_lost"] + two["failed"],
            limit=0,
            note=speed,
        ),
        Bar(
            name="database: rows lost that a killed writer had committed, or left of half a transaction",
            figure=sum(r["rows_lost"] + r["rows_of_a_broken_lot"] for r in in_time) if in_time else None,
            limit=0,
            note=f"{len(in_time)} writers killed in the middle",
        ),
        Bar(name="database: damaged files not reported", figure=float(not damaged["reported"]), limit=0),
        Bar(
            name="database: rows missing after recovery, or the damaged file not kept",
            figure=damaged["rows_missing"] + (not damaged["damaged_file_kept"]),
            limit=0,
        ),
        Bar(
            name="database: files with something to run that were taken, or ran",
            figure=sum(not row["refused"] or row["operations_lost"] > 0 for row in foreign),
            limit=0,
            note=f"{len(foreign)} files",
        ),
    ]


@contextmanager
def _writing(path: Path, source: str, rows: int, rows_per_commit: int) -> Generator[subprocess.Popen[str]]:
    """A writer that is ready to begin, and is gone afterwards."""
    command = [sys.executable, "-m", "benchmarks.prediction.writer", str(path), source]
    process = subprocess.Popen(
        [*command, str(rows), str(rows_per_commit)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        if next(_lines(process.stdout), "") != "ready":
            raise DacemlError("a writer did not start")
        yield process
    finally:
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                stream.close()


def _go(process: subprocess.Popen[str]) -> None:
    if process.stdin is not None:
        process.stdin.write("\n")
        process.stdin.flush()


def _lines(stream: IO[str] | None) -> Iterator[str]:
    return (line.strip() for line in (stream or ()))
