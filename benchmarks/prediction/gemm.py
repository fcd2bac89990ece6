"""Products in bfloat16 on an H100, from what an A100 and an L40S took: tables of aiconfigurator."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.bars import Bar
from benchmarks.prediction.blind import question, table_of
from benchmarks.prediction.judgement import judged
from daceml.operations.database.importers.aiconfigurator import import_gemm
from daceml.operations.models.transfer import known_rows, transferred

TABLES = "measurements/aiconfigurator/{device}/gemm_perf.parquet"
DEVICES = ("a100_sxm", "h100_sxm", "l40s")
TARGET = "H100-SXM5-80GB"
LARGE_S, ERROR = 50e-6, 0.10
SEED = 0
QUICK_ROWS = 4000


def measured(folder: Path, *, quick: bool) -> tuple[list[dict[str, Any]], list[Bar]]:
    """All products that all three devices have."""
    entries = [
        entry
        for device in DEVICES
        for entry in import_gemm(folder / TABLES.format(device=device), date="2026-11-20").entries
        if {one.dtype for one in entry.operation.operands} == {"bfloat16"}
    ]
    table = table_of(entries, "aiconfigurator")
    if quick:
        order = np.random.default_rng(SEED).permutation(len(table.operations))
        table = table.at(order[:QUICK_ROWS])
    asked = question(table, TARGET)
    chosen = np.array(known_rows(asked.table))
    estimates = transferred(asked.table.at(chosen), asked.target)
    seconds = asked.seconds[chosen]
    rows: list[dict[str, Any]] = []
    for which, mine in (("above 50 us", seconds > LARGE_S), ("up to 50 us", seconds <= LARGE_S)):
        kept = [one for one, there in zip(estimates, mine, strict=True) if there]
        rows.append({"operations": which, "device": TARGET, **judged(kept, seconds[mine])})
    return rows, bars(rows)


def bars(rows: Sequence[dict[str, Any]]) -> list[Bar]:
    """The large ones are promised; the others are told."""
    seen = {row["operations"]: row for row in rows}
    large, small = seen.get("above 50 us"), seen.get("up to 50 us")
    note = "" if large is None else f"within intervals of 90 %: {large['covered']:.2f}"
    note += "" if small is None else f"; up to 50 us {small['error']:.3f}"
    return [
        Bar(
            name="GEMM in bfloat16 on H100 from A100 and L40S, above 50 us: mean error",
            figure=None if large is None else large["error"],
            limit=ERROR,
            note=note,
        )
    ]
