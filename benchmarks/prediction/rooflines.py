"""Elementwise operators and normalisations by calibrated rooflines: rows of NeuSight, one in ten held out."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.bars import Bar
from daceml.devices.catalogue import find_device
from daceml.operations.database.importers.neusight import import_neusight
from daceml.operations.database.records import Entry
from daceml.operations.models.calibrated_roofline import calibrated

OPERATORS = ("add", "gelu", "softmax", "ln")
TABLES = "measurements/neusight/train/{operator}/p2.1.0"
SEED = 0
HELD_OUT = 10
LARGE_S = 50e-6
LARGE_ERROR, SMALL_ERROR = 0.08, 0.15


def measured(folder: Path) -> tuple[list[dict[str, Any]], list[Bar]]:
    """Every operator on every GPU of the set."""
    rows = [
        held_out(operator, import_neusight(file, date="2026-11-20").entries)
        for operator in OPERATORS
        for file in sorted((folder / TABLES.format(operator=operator)).glob("*.csv.gz"))
    ]
    return rows, bars(rows)


def held_out(operator: str, entries: Sequence[Entry]) -> dict[str, Any]:
    """Mean relative errors of one row in ten, predicted from the others of the same GPU."""
    order = np.random.default_rng(SEED).permutation(len(entries))
    tested, known = (
        [entries[i] for i in part]
        for part in (order[: len(order) // HELD_OUT], order[len(order) // HELD_OUT :])
    )
    device = entries[0].environment.device
    cache = find_device(device).need("l2_bytes", why="what a cache holds comes at another rate")
    model = calibrated([e.operation for e in known], _seconds(known), l2_bytes=cache)
    seconds = _seconds(tested)
    error = np.abs(model.predict([e.operation for e in tested]) / seconds - 1)
    large = seconds >= LARGE_S
    return {
        "operator": operator,
        "device": device,
        "tested": len(tested),
        "large": int(large.sum()),
        "large_error": float(error[large].mean()) if large.any() else None,
        "small_error": float(error[~large].mean()) if not large.all() else None,
    }


def bars(rows: Sequence[dict[str, Any]]) -> list[Bar]:
    """Of each operator, the mean over GPUs, with the worst of them."""
    found: defaultdict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        for which in ("large", "small"):
            if row[f"{which}_error"] is not None:
                found[row["operator"], which].append(row)
    made: list[Bar] = []
    for operator in OPERATORS:
        for which, words, limit in (("large", "50 us and more", LARGE_ERROR), ("small", "less", SMALL_ERROR)):
            mine = found[operator, which]
            errors = [row[f"{which}_error"] for row in mine]
            worst = max(mine, key=lambda row: row[f"{which}_error"], default=None)
            note = "" if worst is None else f"worst {max(errors):.3f} on {worst['device']}"
            figure = float(np.mean(errors)) if errors else None
            name = f"NeuSight, {operator} of {words} by roofline: mean error"
            made.append(Bar(name=name, figure=figure, limit=limit, note=note))
    return made


def _seconds(entries: Sequence[Entry]) -> np.ndarray:
    return np.array([entry.duration.median_s for entry in entries])
