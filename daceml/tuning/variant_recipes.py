"""From names of choices to the recipe that they make of the standard one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from daceml.tuning.recipe_changes import CHOICES, NO_RECOMPUTATION, Choice

if TYPE_CHECKING:
    from daceml.compiler.stages.recomputation import Recomputation
    from daceml.onnx_ops.registry import Kind
    from daceml.transformations.recipe import Recipe, Situation


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
    from daceml.transformations.implementation_preference import prefer_implementations
    from daceml.transformations.recipe import Recipe, Step
    from daceml.transformations.standard import standard_recipe

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
