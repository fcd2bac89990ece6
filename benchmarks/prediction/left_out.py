"""Rows of NeuSight on a GPU that is left out as a whole, from what the others took."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.bars import Bar
from benchmarks.prediction.blind import NEUSIGHT, neusight, question
from benchmarks.prediction.judgement import judged, over_devices
from benchmarks.prediction.small_boards import shares, without_its_own
from daceml.operations.models.transfer import known_rows, transferred

ERROR, BEYOND = 0.15, 0.20
SEED = 0
QUICK_ROWS = 800


def measured(folder: Path, *, quick: bool) -> tuple[list[dict[str, Any]], list[Bar]]:
    """Every operator, each GPU left out in turn; operations that at least two others have measured."""
    rows: list[dict[str, Any]] = []
    boards = shares(folder)
    for operator in NEUSIGHT:
        table = neusight(folder, operator)
        if quick:
            order = np.random.default_rng(SEED).permutation(len(table.operations))
            table = table.at(order[:QUICK_ROWS])
        for target in table.seconds:
            asked = question(table, target)
            chosen = known_rows(asked.table)
            estimates = transferred(asked.table.at(chosen), without_its_own(asked.target, boards))
            seen = judged(estimates, asked.seconds[chosen])
            left = len(asked.seconds) - len(chosen)
            told = {"protocol": "GPU left out", "operator": operator, "device": target}
            rows.append({**told, **seen, "not_measured_elsewhere": left})
            print(f"{operator}, {target} left out: {seen['error']:.3f}", flush=True)
    return rows, bars(rows)


def bars(rows: Sequence[dict[str, Any]]) -> list[Bar]:
    """Of each operator, means over GPUs, with the worst of them."""
    made: list[Bar] = []
    for operator in NEUSIGHT:
        seen = over_devices(rows, operator)
        name = f"NeuSight, {operator}, one GPU left out"
        width = "" if seen.width is None else f"mean width {seen.width:.2f}"
        made += [
            Bar(name=f"{name}: mean error", figure=seen.error, limit=ERROR, note=seen.worst),
            Bar(name=f"{name}: share beyond intervals of 90 %", figure=seen.beyond, limit=BEYOND, note=width),
        ]
    return made
