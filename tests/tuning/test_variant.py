"""How variants are named, stored and joined."""

from __future__ import annotations

import pytest

from daceml.exploration.variant_space import Space
from daceml.tuning.recipe_changes import NO_RECOMPUTATION
from daceml.tuning.variant import Variant
from tests.support.golden import golden


def test_a_title_says_what_changes():
    for variant, facts in (
        (Variant(), ["standard recipe"]),
        (Variant(choices=("loops apart",), freeze=True), ["loops apart", "frozen"]),
        (Variant(without=("fuse_maps",), depth="loops"), ["loops", "without fuse_maps"]),
        (Variant(only=()), ["empty"]),
        (Variant(device="H100", fused=True, ranks=8), ["fused", "H100", "8 ranks"]),
        (Variant(memory_share=0.75), ["75%"]),
    ):
        assert variant.title == golden()
        assert all(fact in variant.title for fact in facts)
    assert len(Variant(without=("fuse_maps",), depth="loops").changes) == 2


def test_promises_are_told():
    frozen, rounded = Variant(freeze=True, precision="bfloat16").promises
    assert [frozen, rounded] == [golden(), golden()]
    assert "weights" in frozen and "bfloat16" in rounded
    assert Variant(choices=("loops apart",)).promises == ()


@pytest.mark.parametrize(
    "variant",
    [
        Variant(),
        Variant(choices=("a", "b"), freeze=True, memory_share=0.5),
        Variant(without=("x",), only=("y",), precision="bfloat16"),
        Variant(only=(), device="H100", ranks=4, fused=True),
    ],
)
def test_what_is_stored_is_found_again(variant: Variant):
    assert Variant.from_json(variant.to_json()) == variant


def test_only_what_runs_here_is_here():
    assert Variant(freeze=True).here
    assert not Variant(device="H100").here and not Variant(ranks=2).here


def test_inference_can_be_frozen_and_training_can_recompute():
    inference = Space(training=False, freezable=True).singles()
    assert inference[0] == Variant()
    assert Variant(freeze=True) in inference and Variant(freeze=True, choices=("plain weights",)) in inference
    training = Space(training=True, freezable=False).singles()
    assert not any(one.freeze for one in training)
    assert Variant(choices=(NO_RECOMPUTATION,)) in training
    assert sum(one.memory_share is not None for one in training) == 3
    for found in (inference, training):
        assert len(set(found)) == len(found)


def test_precisions_are_tried_where_they_are_asked_for():
    assert not any(one.precision for one in Space(training=False, freezable=False).singles())
    asked = Space(training=False, freezable=False, precisions=("bfloat16",)).singles()
    assert asked[-1] == Variant(precision="bfloat16")


def test_joined_variants_have_all_changes_and_no_contradictions():
    apart, small = Variant(choices=("loops apart",)), Variant(choices=("small nests",))
    sums, frozen = Variant(choices=("short sums as loops",)), Variant(freeze=True)
    whole, less = Variant(unoptimised=True), Variant(depth="loops")
    found = list(Space(training=False, freezable=True).combined([apart, small, sums, frozen, whole, less]))
    assert Variant(choices=("loops apart", "short sums as loops"), freeze=True) in found
    assert not any({"loops apart", "small nests"} <= set(one.choices) for one in found)
    # a depth says which passes run: it goes with what is no pass
    assert [one for one in found if one.unoptimised or one.depth != "all"] == [
        Variant(depth="loops", freeze=True)
    ]
    assert len(set(found)) == len(found)
    assert not set(found) & {apart, small, sums, frozen}
