"""What the standard recipe does not do, by name, and what it would be worth."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from daceml.errors import ExplorationError
from daceml.exploration.additions import addition_named, additions, passes_of
from daceml.exploration.effects import effects
from daceml.tuning.variant import Variant
from tests.support.golden import raises


@pytest.mark.parametrize(
    ("text", "training", "variant"),
    [
        ("bf16", False, Variant(precision="bfloat16")),
        ("float16", True, Variant(precision="float16")),
        ("freeze", False, Variant(freeze=True)),
        ("products-in-loops", True, Variant(choices=("products in loops",))),
        ("Products in loops", False, Variant(choices=("products in loops",))),
        ("store-everything", True, Variant(choices=("store everything",))),
        ("memory=75%", True, Variant(memory_share=0.75)),
    ],
)
def test_names_of_additions(text: str, training: bool, variant: Variant):
    assert addition_named(text, training) == variant
    assert variant in additions(training).values() or variant.memory_share


@pytest.mark.parametrize(
    ("text", "training", "facts"),
    [
        ("frees", False, ["inference", "'freeze'"]),
        ("freeze", True, ["training", "bf16"]),
        ("memory=75%", False, ["inference", "bf16"]),
        ("memory=0%", True, ["training", "memory=75%"]),
        ("", False, ["inference", "bf16"]),
    ],
)
def test_what_is_none_is_refused(text: str, training: bool, facts: list[str]):
    with raises(ExplorationError, repr(text), *facts):
        addition_named(text, training)


def test_an_addition_is_told_among_others_and_alone():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 16)).eval()
    (loops, frozen) = effects(
        model, torch.randn(8, 16), additions=("products-in-loops", "freeze"), measure=True, limit_s=0.5
    )
    assert loops.name == "products-in-loops" and loops.changes
    assert loops.among is not None and loops.alone is not None
    assert loops.alone.value != 1  # by themselves, loops are other steps than calls
    assert loops.measured_among is not None and loops.measured_among.value > 0
    assert frozen.name == "freeze" and not frozen.why


def test_what_only_leaves_passes_out_says_nothing_alone():
    assert passes_of(Variant(choices=("no columns",))) is None
    assert passes_of(Variant(choices=("columns everywhere",))) == ("use_columns",)
    assert passes_of(Variant(choices=("products in loops",))) == ()
    assert passes_of(Variant(precision="bfloat16")) == ()
