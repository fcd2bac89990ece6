"""What lifting is for: in a training step, a spelled-out operator keeps no more than the operator does."""

from __future__ import annotations

import math

import torch
from torch.nn import functional

import daceml
from daceml.transformations.standard import operator_recipe
from tests.support.computations import Apart
from tests.support.tensor_functions import Function


def spelled_normalization(x: torch.Tensor) -> torch.Tensor:
    mean = x.mean(-1, keepdim=True)
    return (x - mean) / torch.sqrt(((x - mean) ** 2).mean(-1, keepdim=True) + 1e-6)


SPELLED: dict[str, Function] = {
    "gelu": lambda x: 0.5 * x * (1 + torch.erf(x / math.sqrt(2))),
    "mish": lambda x: x * torch.tanh(functional.softplus(x)),
    "silu": functional.silu,
    "normalization": spelled_normalization,
}


def test_a_training_step_keeps_statistics_of_rows_at_most():
    module = Apart(**SPELLED)
    inputs = [x.requires_grad_() for x in module.copies(torch.randn(12, 64))]
    compiled = daceml.compile(module)
    torch.autograd.backward([y.sum() for y in compiled(*inputs).values()])
    variant, _ = compiled.session.variant(tuple(inputs), {})
    assert variant.backward is not None
    assert len(variant.backward.record.saved) == 2, "both of the normalization"


def test_what_is_one_loop_in_inference_is_lifted_for_training_only():
    lifting = {
        training: [s.name for s in operator_recipe(training=training) if s.name.startswith("lift")]
        for training in (False, True)
    }
    names = ("attention", "layer_normalization", "rms_normalization", "gelu", "mish", "swish")
    assert lifting == {False: ["lift_attention"], True: [f"lift_{name}" for name in names]}
