"""The table of choices fits the standard recipe, and makes recipes of it."""

from __future__ import annotations

import pytest

from daceml.compiler.keys.recipe_key import recipe_key
from daceml.compiler.stages.recomputation import Recomputation
from daceml.errors import ConfigurationError
from daceml.onnx_ops.registry import implementations_of
from daceml.transformations.recipe import Recipe, Situation
from daceml.transformations.standard import standard_recipe
from daceml.tuning.recipe_changes import CHOICES, NO_RECOMPUTATION, Choice
from daceml.tuning.variant_recipes import choices_for, varied_recipe, varied_recomputation
from tests.support.golden import golden, raises

SITUATIONS: tuple[Situation, ...] = ("inference", "frozen", "training")
CHEAP = Recomputation(mode="cheap")


def test_no_choice_is_the_standard_recipe():
    assert varied_recipe(()) is None
    assert varied_recipe((NO_RECOMPUTATION,)) is None


@pytest.mark.parametrize("situation", SITUATIONS)
def test_every_choice_changes_the_recipe_of_its_situation(situation: Situation):
    standard = standard_recipe().ordered().when(situation)
    for choice in choices_for(situation, CHEAP):
        if choice.name != NO_RECOMPUTATION:
            recipe = varied_recipe((choice.name,))
            assert recipe is not None, choice.name
            assert recipe.ordered().when(situation) != standard, choice.name


def test_names_are_unique_and_every_choice_says_why():
    assert len({choice.name for choice in CHOICES}) == len(CHOICES)
    for choice in CHOICES:
        assert len(choice.why) > 20 and choice.why[0].islower() and not choice.why.endswith(".")


def test_preferred_implementations_exist():
    for choice in CHOICES:
        for op_type, kind in choice.prefer.items():
            domain = "daceml.grad" if op_type.endswith("Grad") else ""
            assert kind in {i.kind for i in implementations_of(op_type, domain)}, op_type


def test_passes_of_the_canonical_form_are_no_choices():
    touched = {name for choice in CHOICES for name in choice.without}
    assert not touched & {"eliminate_copies", "split_dropout", "schedule_maps", "fold_constants", "fuse_maps"}


def test_all_choices_together_are_one_recipe_with_a_key():
    names = [choice.name for choice in CHOICES]
    recipe = varied_recipe(names)
    assert recipe is not None
    assert recipe.place("prefer_implementations") < recipe.place("eliminate_copies")
    (step,) = (step for step in recipe if step.name == "prefer_implementations")
    assert step.options["kinds"]["Conv"] == "native" and step.options["kinds"]["SoftmaxGrad"] == "aten"
    assert recipe_key(recipe) == recipe_key(varied_recipe(names)) != recipe_key(standard_recipe())
    assert Recipe.from_json(recipe.to_json()) == recipe


def test_an_unknown_pass_in_the_table_is_found():
    wrong = Choice(name="wrong", why="a pass that is not there", without=("no_such_pass",))
    with raises(ConfigurationError, "'no_such_pass'", "fuse_maps", exact=False) as refusal:  # and all others
        varied_recipe(("wrong",), (wrong,))
    assert refusal.value.what == golden()


def test_storing_everything_is_a_choice_where_cheap_recomputation_is_the_other():
    assert NO_RECOMPUTATION in [choice.name for choice in choices_for("training", CHEAP)]
    for given in (None, Recomputation(mode="none"), Recomputation(mode="budget", budget_bytes=1)):
        assert NO_RECOMPUTATION not in [choice.name for choice in choices_for("training", given)]
    assert varied_recomputation((NO_RECOMPUTATION,), CHEAP).mode == "none"
    assert varied_recomputation((), CHEAP) == CHEAP
