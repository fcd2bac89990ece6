"""Which variants there are: single changes, and two at once where they say nothing of the same."""

from __future__ import annotations

from daceml.exploration.variant_space import Space
from daceml.tuning.variant import Variant
from daceml.tuning.variant_recipes import recipe_of

SPACE = Space(training=False, freezable=True)
FUSION, PACKING = Variant(without=("fuse_maps",)), Variant(without=("pack_weights",))
LOOPS, FROZEN = Variant(choices=("products in loops",)), Variant(freeze=True)


def test_every_pass_is_left_out_once():
    singles = SPACE.singles()
    assert singles[0] == Variant() and len(set(singles)) == len(singles)
    assert {FUSION, PACKING, LOOPS, FROZEN} <= set(singles)


def test_two_changes_at_once_then_more():
    found = list(SPACE.combined([LOOPS, FROZEN, FUSION, PACKING]))
    pairs, triples, all_four = found[:6], found[6:10], found[10:]
    assert pairs[0] == Variant(choices=("products in loops",), freeze=True)
    assert Variant(without=("fuse_maps", "pack_weights")) in pairs
    assert Variant(choices=("products in loops",), without=("fuse_maps",)) in pairs
    assert Variant(choices=("products in loops",), without=("fuse_maps",), freeze=True) in triples
    assert len(found) == len(set(found)) == 11 and all_four[0].freeze


def test_the_order_of_choices_says_nothing():
    apart = Variant(choices=("loops apart",))
    assert list(SPACE.combined([LOOPS, apart])) == list(SPACE.combined([apart, LOOPS]))


def test_what_says_everything_or_the_same_is_no_pair():
    whole = [Variant(unoptimised=True), Variant(depth="loops"), Variant(memory_share=0.9)]
    assert list(SPACE.combined([*whole, LOOPS])) == []
    assert list(SPACE.combined([LOOPS, Variant(choices=("products in loops",), freeze=True)])) == []
    halves = [Variant(precision="bfloat16"), Variant(precision="float16")]
    assert list(SPACE.combined(halves)) == []


def test_a_pass_that_a_choice_leaves_out_already_may_be_left_out_too():
    both = Variant(choices=("no columns",), without=("use_columns",))
    recipe = recipe_of(both)
    assert recipe is not None and "use_columns" not in [step.name for step in recipe]
