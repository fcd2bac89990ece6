"""From names of choices to the recipe that they make of the standard one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from daceml.compiler.stages.recomputation import Recomputation
from daceml.transformations.implementation_preference import prefer_implementations
from daceml.transformations.recipe import Recipe, Step
from daceml.transformations.standard import standard_recipe
from daceml.tuning.recipe_changes import CHOICES, NO_RECOMPUTATION, Choice
from daceml.tuning.variant import Depth, Variant

if TYPE_CHECKING:
    from daceml.onnx_ops.registry import Kind
    from daceml.sdfg.passes import Level
    from daceml.transformations.recipe import Situation

_LEVELS: Mapping[Depth, tuple[Level, ...]] = {
    "operators": ("coarse", "operators"),
    "loops": ("coarse", "operators", "local"),
    "layout": ("coarse", "operators", "local", "layout"),
}


def choices_for(situation: Situation, recomputation: Recomputation | None = None) -> tuple[Choice, ...]:
    """The choices that there are.

    Args:
        recomputation: what the backward pass computes again; None where that is no choice.
    """
    cheap = recomputation is not None and recomputation.mode == "cheap"
    return tuple(
        choice
        for choice in CHOICES
        if (not choice.only or situation in choice.only) and (cheap or choice.name != NO_RECOMPUTATION)
    )


def varied_recipe(names: Sequence[str], choices: Sequence[Choice] | None = None) -> Recipe | None:
    """The standard recipe with some choices; None where it stays as it is.

    Args:
        choices: that the names are of; all where None.
    """
    known = {choice.name: choice for choice in (CHOICES if choices is None else choices)}
    kinds: dict[str, Kind] = {}
    standard = recipe = standard_recipe()
    for choice in (known[name] for name in names):
        for name in choice.without:
            recipe = recipe.without(name)
        steps = [
            replace(
                step,
                options={**step.options, **choice.options.get(step.name, {})},
                only=() if step.name in choice.everywhere else step.only,
            )
            for step in recipe
        ]
        recipe = Recipe(*steps)
        kinds |= choice.prefer
    if kinds:
        recipe = recipe.before(
            "eliminate_copies", Step(prefer_implementations, {"kinds": kinds}, at="operators")
        )
    # passes of daceml's own, and results are compared
    return None if recipe == standard else recipe.unchecked()


def varied_recomputation(names: Sequence[str], given: Recomputation) -> Recomputation:
    """What the backward pass computes again with some choices."""
    return replace(given, mode="none") if NO_RECOMPUTATION in names else given


def recipe_to_lower(variant: Variant) -> Recipe | None:
    """Without looking at the network after each pass: of what is measured, results are compared."""
    found = recipe_of(variant)
    return found if found is None or variant.recipe else found.unchecked()


def recipe_of(variant: Variant) -> Recipe | None:
    """The recipe of a variant; None for the standard one."""
    if variant.recipe:
        return Recipe.from_json(variant.recipe)
    found = varied_recipe(variant.choices)
    if variant.depth == "all" and not variant.without and variant.only is None:
        return found
    recipe = standard_recipe() if found is None else found
    for name in variant.without:
        if any(step.name == name for step in recipe):  # else a choice leaves it out already
            recipe = recipe.without(name)
    if variant.only is not None:
        # what a choice brings along is no pass of the standard recipe, and stays
        standard = {step.name for step in standard_recipe()}
        recipe = Recipe(*(s for s in recipe if s.name in variant.only or s.name not in standard))
    return recipe if variant.depth == "all" else Recipe(*recipe.at(*_LEVELS[variant.depth]))
