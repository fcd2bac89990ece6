"""Normalisations against torch and the ONNX reference."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn import functional

from tests.onnx_ops.native.single_node import Case, Outcome, random

t = torch.from_numpy
X = random(4, 6, 5, 3) + 2
S, B, M, V = random(6), random(6, seed=1), random(6, seed=2), np.abs(random(6, seed=3)) + 0.2
MEAN, VARIANCE = X.mean((0, 2, 3)), X.var((0, 2, 3))
FAR = (random(3, 64) * 1e-2 + 1000).astype(np.float32)


def norm(x: np.ndarray, axes: tuple[int, ...], eps: float) -> list[np.ndarray]:
    wide = x.astype(np.float64)
    mean, inverse = wide.mean(axes, keepdims=True), 1 / np.sqrt(wide.var(axes, keepdims=True) + eps)
    return [v.astype(np.float32) for v in ((wide - mean) * inverse, mean, inverse)]


SHAPED = random(5, 3), random(5, 3, seed=5)
PLAIN, LAYER_MEAN, LAYER_INVERSE = norm(X, (2, 3), 1e-5)
TRAINED = functional.batch_norm(t(X), None, None, t(S), t(B), training=True).numpy()
CASES = {
    "LayerNormalization": Case(
        op="LayerNormalization",
        inputs=[X, SHAPED[0], SHAPED[1]],
        attributes={"axis": 2},
        outputs=3,
        expected=[PLAIN * SHAPED[0] + SHAPED[1], LAYER_MEAN, LAYER_INVERSE],
    ),
    "LayerNormalization last": Case(
        op="LayerNormalization",
        inputs=[X, random(3)],
        attributes={"epsilon": 1e-2},
        expected=[norm(X, (3,), 1e-2)[0] * random(3)],
    ),
    "LayerNormalization far": Case(
        op="LayerNormalization",
        inputs=[FAR, np.ones(64, np.float32)],
        attributes={"epsilon": 0.0},
        expected=[norm(FAR, (1,), 0.0)[0]],
        atol=2e-2,
    ),
    "LayerNormalization float16": Case(
        op="LayerNormalization",
        inputs=[X.astype(np.float16), random(3).astype(np.float16)],
        expected=[(norm(X.astype(np.float16), (3,), 1e-5)[0] * random(3)).astype(np.float16)],
        rtol=4e-3,
        atol=4e-3,
    ),
    "LayerNormalization symbolic": Case(
        op="LayerNormalization", inputs=[random(7, 5), random(5)], symbolic={7: "N"}
    ),
    "RMSNormalization": Case(
        op="RMSNormalization",
        inputs=[X, random(3)],
        version=23,
        expected=[functional.rms_norm(t(X), (3,), t(random(3)), 1e-5).numpy()],
    ),
    "BatchNormalization": Case(
        op="BatchNormalization",
        inputs=[X, S, B, M, V],
        expected=[functional.batch_norm(t(X), t(M), t(V), t(S), t(B)).numpy()],
    ),
    "BatchNormalization 9": Case(
        op="BatchNormalization",
        inputs=[X, S, B, M, V],
        version=9,
        expected=[functional.batch_norm(t(X), t(M), t(V), t(S), t(B)).numpy()],
    ),
    "BatchNormalization [N, C]": Case(
        op="BatchNormalization",
        inputs=[random(5, 6), S, B, M, V],
        expected=[functional.batch_norm(t(random(5, 6)), t(M), t(V), t(S), t(B)).numpy()],
    ),
    "BatchNormalization [N, C, L]": Case(
        op="BatchNormalization",
        inputs=[random(5, 6, 4), S, B, M, V],
        expected=[functional.batch_norm(t(random(5, 6, 4)), t(M), t(V), t(S), t(B)).numpy()],
    ),
    # momentum is the weight of the old statistics, and the variance is that of the population.
    "BatchNormalization training": Case(
        op="BatchNormalization",
        inputs=[X, S, B, M, V],
        attributes={"training_mode": 1, "momentum": 0.9},
        expected=[TRAINED, 0.9 * M + 0.1 * MEAN, 0.9 * V + 0.1 * VARIANCE],
        atol=2e-6,
    ),
    "BatchNormalization training, one output": Case(
        op="BatchNormalization",
        inputs=[X, S, B, M, V],
        attributes={"training_mode": 1},
        expected=[TRAINED],
        atol=2e-6,
    ),
    "InstanceNormalization": Case(
        op="InstanceNormalization",
        inputs=[X, S, B],
        atol=2e-6,
        expected=[functional.instance_norm(t(X), weight=t(S), bias=t(B)).numpy()],
    ),
    "GroupNormalization": Case(
        op="GroupNormalization",
        inputs=[X, S, B],
        attributes={"num_groups": 2},
        version=21,
        expected=[functional.group_norm(t(X), 2, t(S), t(B)).numpy()],
        atol=2e-6,
    ),
    "LpNormalization": Case(
        op="LpNormalization",
        inputs=[X],
        attributes={"axis": 1},
        expected=[functional.normalize(t(X), dim=1).numpy()],
    ),
    "MeanVarianceNormalization": Case(op="MeanVarianceNormalization", inputs=[X], atol=2e-6),
}


@pytest.mark.parametrize("title", CASES)
def test_values(outcome: Outcome) -> None:
    outcome.check()
