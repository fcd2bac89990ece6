"""A multilayer perceptron as plain arrays."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from daceml.errors import EstimationError


@dataclass(frozen=True, kw_only=True)
class Perceptron:
    """Layers with SiLU between them, over standardised features.

    Attributes:
        centre, scale: [features] what is subtracted, then divided by; what is not known (NaN) is the centre.
        weights: of each layer, [outputs, inputs]; biases: [outputs]. The last layer has one output.
    """

    centre: NDArray[np.float64]
    scale: NDArray[np.float64]
    weights: tuple[NDArray[np.float64], ...]
    biases: tuple[NDArray[np.float64], ...]

    def __post_init__(self) -> None:
        width = len(self.centre)
        fits = len(self.weights) == len(self.biases) > 0 and self.scale.shape == self.centre.shape
        for weight, bias in zip(self.weights, self.biases, strict=False):
            fits = fits and weight.shape == (len(bias), width)
            width = len(bias)
        if not fits or width != 1:
            raise EstimationError(
                "these are no layers of a perceptron",
                why="their sizes do not follow from each other, or the last has not one output",
                fix="fit the model again",
            )

    def predict(self, features: NDArray[np.float64]) -> NDArray[np.float64]:
        """[rows] of features [rows, columns]."""
        held = (features - self.centre) / self.scale
        held = np.where(np.isnan(held), 0.0, held)
        for weight, bias in zip(self.weights[:-1], self.biases[:-1], strict=True):
            held = held @ weight.T + bias
            held = held / (1 + np.exp(-np.clip(held, -500, 500)))
        return (held @ self.weights[-1].T + self.biases[-1])[:, 0]
