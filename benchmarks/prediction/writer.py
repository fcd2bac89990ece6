"""A process that writes rows: python -m benchmarks.prediction.writer PATH SOURCE ROWS ROWS_PER_COMMIT.

Says "ready", waits for a line, and says after each commit how many rows it has written.
"""

from __future__ import annotations

import sys

from daceml.operations.database.records import Duration, Entry, Environment, Operand, Operation
from daceml.operations.database.store import OpDatabase


def rows_of(source: str, rows: int) -> list[Entry]:
    """Rows of products of matrices that differ in a size."""
    environment = Environment(device="none", software={"benchmark": "1"})
    return [
        Entry(
            operation=Operation(
                operator="aten::mm",
                operands=(
                    Operand(shape=(row + 1, 64), dtype="float32"),
                    Operand(shape=(64, 32), dtype="float32"),
                ),
            ),
            environment=environment,
            duration=Duration(median_s=1e-6 * (row + 1)),
            provenance="measured",
            source=source,
            licence="BSD-3-Clause",
            date="2026-11-23",
        )
        for row in range(rows)
    ]


def main(path: str, source: str, rows: int, rows_per_commit: int) -> None:
    """Write, and say how far."""
    made = rows_of(source, rows)
    print("ready", flush=True)
    sys.stdin.readline()
    with OpDatabase(path) as database:
        for start in range(0, rows, rows_per_commit):
            lot = made[start : start + rows_per_commit]
            database.add_all(lot, rows_per_commit=None)
            print(start + len(lot), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
