"""Learned models on rows of NeuSight: one row in ten held out of each GPU."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.bars import Bar
from benchmarks.prediction.blind import NEUSIGHT, neusight
from benchmarks.prediction.judgement import judged, over_devices
from daceml.operations.models.fitting.from_database import fit_one
from daceml.operations.models.observations import Observations

SEED = 0
HELD_OUT = 10
# Whether the other GPUs have run the row that is held out
KNOWN, NEW = "times of other GPUs known", "no time of any GPU known"
ERROR, COVERED = 0.05, (0.85, 0.95)
# Seconds for the architectures of one model
BUDGET_S, QUICK_BUDGET_S = 20.0, 3.0
QUICK_ROWS = 800


def measured(folder: Path, *, quick: bool) -> tuple[list[dict[str, Any]], list[Bar]]:
    """Every operator on every GPU, once where other GPUs have run the row, once where none has."""
    rows: list[dict[str, Any]] = []
    for operator in NEUSIGHT:
        table = neusight(folder, operator)
        for target in table.seconds:
            for elsewhere, known in ((KNOWN, table), (NEW, table.alone(target))):
                rows.append(held_out(operator, known, target, quick=quick) | {"elsewhere": elsewhere})
                print(f"{operator} on {target}, {elsewhere}: {rows[-1]['error']:.3f}", flush=True)
    return rows, bars(rows)


def held_out(operator: str, table: Observations, target: str, *, quick: bool) -> dict[str, Any]:
    """A model of nine rows in ten judges the tenth; what other devices of the table took is known of both."""
    table = table.at(np.isfinite(table.seconds[target]))
    order = np.random.default_rng(SEED).permutation(len(table.operations))
    order = order[:QUICK_ROWS] if quick else order
    cut = len(order) // HELD_OUT
    tested, known = table.at(order[:cut]), table.at(order[cut:])
    fitted = fit_one(known, target, budget_s=QUICK_BUDGET_S if quick else BUDGET_S)
    hidden = tested.without(target)
    elsewhere = hidden.over_analysis(fitted.model.floor_s)
    references = {name: elsewhere[name] for name in fitted.model.references}
    estimates = fitted.model.estimates(hidden.operations, known.devices[target], references)
    component = fitted.model.component
    return {
        "protocol": "one row in ten",
        "operator": operator,
        "device": target,
        **judged(estimates, tested.seconds[target]),
        "component": "" if component is None else component.text(),
        "correlation": None if component is None else component.correlation,
        "tried": {one.architecture: one.error for one in fitted.tried},
        "share_of_perceptron": fitted.model.share,
    }


def bars(rows: Sequence[dict[str, Any]]) -> list[Bar]:
    """Of each operator, means over GPUs, with the worst of them."""
    made: list[Bar] = []
    for elsewhere in (KNOWN, NEW):
        of_these = [row for row in rows if row["elsewhere"] == elsewhere]
        for operator in NEUSIGHT:
            seen = over_devices(of_these, operator)
            name = f"NeuSight, {operator}, one row in ten held out, {elsewhere}"
            made += [
                Bar(name=f"{name}: mean error", figure=seen.error, limit=ERROR, note=seen.worst),
                Bar(name=f"{name}: share beyond intervals of 90 %", figure=seen.beyond, limit=1 - COVERED[0]),
                Bar(name=f"{name}: share within intervals of 90 %", figure=seen.covered, limit=COVERED[1]),
            ]
    return made
