"""Multilayer perceptrons, fitted by torch and taken over as plain arrays."""

from __future__ import annotations

from dataclasses import dataclass
from time import monotonic

import numpy as np
import torch
from numpy.typing import NDArray

from daceml.operations.models.perceptron import Perceptron


@dataclass(frozen=True, kw_only=True)
class PerceptronSettings:
    """Layers of `width`, trained for so many passes over all rows, `rate` at most at a time."""

    width: int = 192
    layers: int = 3
    passes: int = 150
    rate: float = 3e-3
    rows_at_once: int = 256


def fit_perceptron(
    features: NDArray[np.float64],
    target: NDArray[np.float64],
    settings: PerceptronSettings,
    *,
    until: float = float("inf"),
) -> Perceptron | None:
    """Least absolute errors, with AdamW and one cycle of its rate.

    Args:
        features: [rows, columns]; NaN is not known and counts as the mean.
        target: [rows].
        until: of `time.monotonic`, when it is given up. None is returned then.
    """
    with np.errstate(invalid="ignore"):
        centre, scale = np.nanmean(features, axis=0), np.nanstd(features, axis=0)
    centre = np.where(np.isnan(centre), 0.0, centre)
    scale = np.where(np.isfinite(scale) & (scale > 0), scale, 1.0)
    standard = np.nan_to_num((features - centre) / scale)
    level = float(np.median(target))
    rows = torch.tensor(standard, dtype=torch.float32)
    wanted = torch.tensor(target - level, dtype=torch.float32)
    generator = torch.Generator().manual_seed(0)
    network = _network(features.shape[1], settings, generator)
    optimizer = torch.optim.AdamW(network.parameters(), settings.rate, weight_decay=1e-4)
    steps = -(-len(rows) // settings.rows_at_once)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, settings.rate, total_steps=settings.passes * steps
    )
    for _ in range(settings.passes):
        if monotonic() > until:
            return None
        for chosen in torch.randperm(len(rows), generator=generator).split(settings.rows_at_once):
            loss = (network(rows[chosen])[:, 0] - wanted[chosen]).abs().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    layers = [one for one in network if isinstance(one, torch.nn.Linear)]
    weights = [one.weight.detach().double().numpy() for one in layers]
    biases = [one.bias.detach().double().numpy() for one in layers]
    biases[-1] = biases[-1] + level
    return Perceptron(centre=centre, scale=scale, weights=tuple(weights), biases=tuple(biases))


def _network(inputs: int, settings: PerceptronSettings, generator: torch.Generator) -> torch.nn.Sequential:
    """With weights of this generator alone: torch's own stays as the caller has it."""
    layers: list[torch.nn.Module] = []
    width = inputs
    for outputs in (*[settings.width] * settings.layers, 1):
        layer = torch.nn.utils.skip_init(torch.nn.Linear, width, outputs)
        bound = width**-0.5
        for parameter in layer.parameters():
            torch.nn.init.uniform_(parameter, -bound, bound, generator=generator)
        layers += [layer, torch.nn.SiLU()]
        width = outputs
    return torch.nn.Sequential(*layers[:-1])
