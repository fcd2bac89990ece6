"""Boosted trees, fitted by scikit-learn's histograms and taken over as plain arrays."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from time import monotonic
from typing import Any

import numpy as np
from numpy.typing import NDArray

from daceml.errors import EnvironmentProblem
from daceml.operations.models.boosted_trees import BoostedTrees

# Trees that are fitted before anything is known of the time that one takes
_FIRST = 20


@dataclass(frozen=True, kw_only=True)
class TreeSettings:
    """How many and how large; `fewest` rows stay in a leaf, and each step goes `rate` of the way."""

    trees: int = 400
    leaves: int = 31
    fewest: int = 8
    rate: float = 0.06


def fit_trees(
    features: NDArray[np.float64],
    target: NDArray[np.float64],
    settings: TreeSettings,
    *,
    until: float = float("inf"),
) -> BoostedTrees:
    """Least absolute errors: of logarithms, these are relative ones, and no outlier decides.

    Args:
        features: [rows, columns]; NaN is not known.
        target: [rows].
        until: of `time.monotonic`; the sum ends with the trees that there are by then, twenty at least.
    Raises:
        EnvironmentProblem: scikit-learn is not there.
    """
    try:
        from sklearn.ensemble import HistGradientBoostingRegressor
        from threadpoolctl import threadpool_limits
    except ImportError as error:
        raise EnvironmentProblem(
            "models of operations cannot be fitted",
            why=f"scikit-learn is not installed: {error}",
            fix="pip install 'daceml[learn]'; models that were fitted elsewhere need nothing",
        ) from error
    # One thread: the steps are short, and threads that wait for each other on a busy machine take minutes.
    model = HistGradientBoostingRegressor(
        loss="absolute_error",
        max_iter=settings.trees,
        warm_start=True,
        learning_rate=settings.rate,
        max_leaf_nodes=settings.leaves,
        min_samples_leaf=settings.fewest,
        early_stopping=False,  # pyright: ignore[reportArgumentType]
        random_state=0,
    )
    begun, count = monotonic(), 0
    fitted: Any = model
    with threadpool_limits(1):
        while (more := _next(settings.trees - count, count, begun, until)) > 0:
            count += more
            fitted = model.set_params(max_iter=count).fit(features, target)
    # Nothing public gives the trees themselves; a test compares predictions.
    nodes = [tree.nodes for (tree,) in fitted._predictors]
    sizes = [len(one) for one in nodes]
    roots = np.cumsum([0, *sizes[:-1]]).astype(np.int32)
    offsets = np.repeat(roots, sizes)
    every = np.concatenate(nodes)
    leaf = every["is_leaf"].astype(bool)
    return BoostedTrees(
        start=float(np.ravel(fitted._baseline_prediction)[0]),
        roots=roots,
        feature=np.where(leaf, -1, every["feature_idx"]).astype(np.int32),
        threshold=np.where(leaf, 0.0, every["num_threshold"]),
        left=np.where(leaf, 0, every["left"].astype(np.int64) + offsets).astype(np.int32),
        right=np.where(leaf, 0, every["right"].astype(np.int64) + offsets).astype(np.int32),
        missing_left=every["missing_go_to_left"].astype(bool),
        value=np.where(leaf, every["value"], 0.0),
    )


def _next(left: int, done: int, begun: float, until: float) -> int:
    """How many trees to add: all that are left, or as many as time allows, at most doubling their number."""
    if not isfinite(until):
        return left
    if not done:
        return min(left, _FIRST)
    now = monotonic()
    return min(left, done, int((until - now) / ((now - begun) / done)))
