"""A sum of regression trees as plain arrays."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from daceml.errors import EstimationError

# Rows that go through all trees at a time: their places fit into a cache
_ROWS_AT_ONCE = 512


@dataclass(frozen=True, kw_only=True)
class BoostedTrees:
    """Nodes of all trees one after the other.

    Attributes:
        start: what the sum begins with.
        roots: [trees] node at which each begins.
        feature: [nodes] column that is compared; -1 at a leaf.
        threshold: [nodes] at most this goes left.
        left, right: [nodes] where it goes on.
        missing_left: [nodes] whether what is not known (NaN) goes left.
        value: [nodes] what a leaf adds.
    """

    start: float
    roots: NDArray[np.int32]
    feature: NDArray[np.int32]
    threshold: NDArray[np.float64]
    left: NDArray[np.int32]
    right: NDArray[np.int32]
    missing_left: NDArray[np.bool_]
    value: NDArray[np.float64]

    def __post_init__(self) -> None:
        nodes = len(self.feature)
        columns = (self.threshold, self.left, self.right, self.missing_left, self.value)
        inner = self.feature >= 0
        children = np.concatenate([self.left[inner], self.right[inner]])
        parents = np.tile(np.flatnonzero(inner), 2)
        # a node's children come after it, so that nothing that a file says goes round for ever
        wrong = (
            any(column.shape != (nodes,) for column in columns)
            or any(column.dtype.kind not in "iu" for column in (self.roots, self.feature, *columns[1:3]))
            or not np.isfinite(self.value).all()
            or (self.roots.size and not (self.roots.min() >= 0 and self.roots.max() < nodes))
            or (children.size and not ((children > parents).all() and children.max() < nodes))
        )
        if wrong:
            raise EstimationError(
                "these are no trees", why="a node leads nowhere, or back", fix="fit the model again"
            )

    def predict(self, features: NDArray[np.float64]) -> NDArray[np.float64]:
        """[rows] of features [rows, columns].

        Raises:
            EstimationError: there are fewer columns than the trees ask for.
        """
        if self.feature.size and features.shape[1] <= self.feature.max():
            raise EstimationError(
                f"{features.shape[1]} features are too few for this model",
                why=f"it asks for {self.feature.max() + 1}",
                fix="make them of the operations as the model says",
            )
        parts = range(0, len(features), _ROWS_AT_ONCE)
        return np.concatenate([np.empty(0), *(self._sums(features[i : i + _ROWS_AT_ONCE]) for i in parts)])

    def _sums(self, features: NDArray[np.float64]) -> NDArray[np.float64]:
        rows = np.arange(len(features))[:, None]
        at = np.broadcast_to(self.roots, (len(features), len(self.roots))).copy()
        while (inner := self.feature[at] >= 0).any():
            seen = features[rows, np.maximum(self.feature[at], 0)]
            goes_left = np.where(np.isnan(seen), self.missing_left[at], seen <= self.threshold[at])
            at = np.where(inner, np.where(goes_left, self.left[at], self.right[at]), at)
        return self.start + self.value[at].sum(axis=1)
