"""What the principal component brings beside sizes, logarithms, and flops with bytes: rows of NeuSight.

One perceptron of one size predicts the logarithm of the duration from each set of features, without analysis
and without other GPUs; one row in ten is held out. Nothing is promised: this is a table to decide by.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.bars import Bar
from benchmarks.prediction.blind import neusight
from daceml.operations.models.features import described
from daceml.operations.models.fitting.perceptrons import PerceptronSettings, fit_perceptron
from daceml.operations.models.observations import Observations
from daceml.operations.models.principal_component import principal_component

OPERATORS = ("bmm", "linear", "conv")
TARGET = "V100-PCIe-32GB"
SEED = 0
HELD_OUT = 10
ROWS, QUICK_ROWS = 6000, 800
SETTINGS = PerceptronSettings(width=128, passes=60)


def measured(folder: Path, *, quick: bool) -> tuple[list[dict[str, Any]], list[Bar]]:
    """A row for each operator and set of features."""
    rows: list[dict[str, Any]] = []
    for operator in OPERATORS:
        table = neusight(folder, operator)
        table = table.at(np.isfinite(table.seconds[TARGET]))
        order = np.random.default_rng(SEED).permutation(len(table.operations))
        table = table.at(order[: QUICK_ROWS if quick else ROWS])
        for name, error in errors(table).items():
            rows.append({"operator": operator, "device": TARGET, "features": name, "error": error})
            print(f"{operator} by {name}: {error:.3f}", flush=True)
    return rows, []


def errors(table: Observations) -> dict[str, float]:
    """Mean relative error of the rows that were held out, by set of features."""
    seconds = table.seconds[TARGET]
    cut = len(seconds) // HELD_OUT
    target = np.log(seconds)
    known, tested = slice(cut, None), slice(0, cut)
    found: dict[str, float] = {}
    for name, features in feature_sets(table, known).items():
        fitted = fit_perceptron(features[known], target[known], SETTINGS)
        assert fitted is not None
        found[name] = float(np.abs(np.expm1(fitted.predict(features[tested]) - target[tested])).mean())
    return found


def feature_sets(table: Observations, known: slice) -> dict[str, NDArray[np.float64]]:
    """By name; the principal component is found from the known rows alone."""
    floor_s = table.floor_s()
    training = described(table.operations[known], table.devices[TARGET], floor_s=floor_s)
    component = principal_component(training.dimensions, table.seconds[TARGET][known])
    seen = described(table.operations, table.devices[TARGET], component, floor_s=floor_s)
    at = {name: column for column, name in enumerate(seen.names)}
    sizes = seen.dimensions.values
    logs = seen.values[:, : sizes.shape[1]]
    product = seen.values[:, [at["principal component"]]]
    both = seen.values[:, [at["flops"], at["bytes"]]]
    return {
        "sizes": sizes,
        "sizes and their principal component": np.hstack([sizes, np.exp(product)]),
        "logarithms": logs,
        "logarithms and the principal component": np.hstack([logs, product]),
        "flops and bytes": both,
        "logarithms, flops and bytes": np.hstack([logs, both]),
        "everything": seen.values,
    }
