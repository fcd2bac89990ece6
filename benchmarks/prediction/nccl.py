"""Collectives between measured sizes: every second size of aiconfigurator's NCCL tables held out."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np

from benchmarks.bars import Bar
from daceml.operations.database.importers.aiconfigurator import import_nccl
from daceml.operations.database.records import Entry
from daceml.simulation.network.collectives import Collective
from daceml.simulation.network.measured import MeasuredCollective

TABLES = "measurements/aiconfigurator"
LARGE_BYTES = 64 << 10
LARGE_ERROR = 0.05


def measured(folder: Path) -> tuple[list[dict[str, Any]], list[Bar]]:
    """Every collective of every machine."""
    rows: list[dict[str, Any]] = []
    for file in sorted((folder / TABLES).glob("*/nccl_perf.parquet")):
        rows += held_out(file.parent.name, import_nccl(file, date="2026-11-20").entries)
    return rows, bars(rows)


def held_out(machine: str, entries: Iterable[Entry]) -> list[dict[str, Any]]:
    """Errors of each collective, number of devices and type: sizes in between, from their neighbours."""
    series: defaultdict[tuple[str, int, str], list[tuple[float, float]]] = defaultdict(list)
    for entry in entries:
        operand, attributes = entry.operation.operands[0], entry.operation.attributes
        key = (entry.operation.operator, cast("int", attributes["devices"]), operand.dtype)
        series[key].append((float(operand.size_bytes), entry.duration.median_s * 1e6))
    rows: list[dict[str, Any]] = []
    for (operator, devices, dtype), points in sorted(series.items()):
        points.sort()
        # sizes at the ends stay: between what was measured nothing is extrapolated
        inner = points[1:-1:2]
        kept = [point for point in points if point not in inner]
        name = Collective(operator.partition("::")[2].replace("_", "-"))
        table = MeasuredCollective.of(kept, collective=name, devices=devices, source=machine)
        errors = [(size, abs(table.duration_us(size) / time - 1)) for size, time in inner]
        rows.append({
            "machine": machine,
            "collective": name,
            "devices": devices,
            "dtype": dtype,
            "large_errors": [error for size, error in errors if size >= LARGE_BYTES],
            "small_errors": [error for size, error in errors if size < LARGE_BYTES],
        })  # fmt: skip
    return rows


def bars(rows: Sequence[dict[str, Any]]) -> list[Bar]:
    """One for each machine; smaller messages are reported beside it."""
    made: list[Bar] = []
    for machine in dict.fromkeys(row["machine"] for row in rows):
        mine = [row for row in rows if row["machine"] == machine]
        large = [error for row in mine for error in row["large_errors"]]
        small = [error for row in mine for error in row["small_errors"]]
        note = f"n={len(large)}, worst {max(large):.3f}; smaller {np.mean(small):.3f}"
        name = f"NCCL on {machine}, every second size held out, 64 KiB and more: mean error"
        made.append(Bar(name=name, figure=float(np.mean(large)), limit=LARGE_ERROR, note=note))
    if not made:
        made.append(Bar(name="NCCL: mean error", figure=None, limit=LARGE_ERROR, note="no table was found"))
    return made
