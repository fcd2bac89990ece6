"""What lifting is for: in a training step, a spelled-out operator keeps no more than the operator does."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch.nn import functional

import daceml
from daceml.transformations.standard import operator_recipe
from tests.transformations.coarse.lifted import Of


def spelled_normalization(x: torch.Tensor) -> torch.Tensor:
    mean = x.mean(-1, keepdim=True)
    return (x - mean) / torch.sqrt(((x - mean) ** 2).mean(-1, keepdim=True) + 1e-6)


@pytest.mark.parametrize(
    ("function", "kept"),
    [
        (lambda x: 0.5 * x * (1 + torch.erf(x / math.sqrt(2))), 0),
        (lambda x: x * torch.tanh(functional.softplus(x)), 0),
        (functional.silu, 0),
        (spelled_normalization, 2),
    ],
)
def test_a_training_step_keeps_statistics_of_rows_at_most(
    function: Callable[[torch.Tensor], torch.Tensor], kept: int
):
    x = torch.randn(12, 64, requires_grad=True)
    module = daceml.compile(Of(function))
    module(x).sum().backward()
    variant, _ = module.session.variant((x,), {})
    assert variant.backward is not None
    assert len(variant.backward.record.saved) == kept


def test_what_is_one_loop_in_inference_is_lifted_for_training_only():
    lifting = {
        training: [s.name for s in operator_recipe(training=training) if s.name.startswith("lift")]
        for training in (False, True)
    }
    names = ("attention", "layer_normalization", "rms_normalization", "gelu", "mish", "swish")
    assert lifting == {False: ["lift_attention"], True: [f"lift_{name}" for name in names]}
