"""The passes that a guided optimisation may apply, in the order in which compilation runs them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from daceml.errors import ConfigurationError
from daceml.transformations.recipe import Recipe, Situation, Step
from daceml.transformations.standard import standard_recipe

Places = tuple[str, ...] | None
"""Arrays where a pass works; None: everywhere."""


class Catalogue:
    """Passes by name, and the choice among them that a recipe is.

    Args:
        recipe: the user's, whose order counts; standard passes that it has not are offered in their places.
        offered: passes besides, behind the others of their levels.
    Attributes:
        first: the passes of the recipe, or of the standard one.
    Raises:
        ConfigurationError: a pass stands there twice, or says no level.
    """

    def __init__(
        self, situation: Situation, recipe: Recipe | None = None, offered: Recipe | None = None
    ) -> None:
        standard = standard_recipe().when(situation)
        base = (standard if recipe is None else recipe.when(situation)).ordered()
        self.first = tuple(step.name for step in base)
        steps = list(base)
        for place, step in enumerate(standard):
            if step.name not in self.first:
                _insert(steps, step, ahead=[known.name for known in standard[:place]])
        steps += (Recipe() if offered is None else offered.when(situation)).steps
        names = [step.name for step in steps]
        if twice := [name for name in names if names.count(name) > 1]:
            raise ConfigurationError(
                f"pass {twice[0]} stands there twice",
                why="passes of a guided optimisation are told apart by their names",
                fix="give each a name of its own",
            )
        self.steps: Mapping[str, Step] = {step.name: step for step in Recipe(*steps).ordered()}

    def everything(self, names: Iterable[str]) -> dict[str, Places]:
        """The choice of these passes, each everywhere or where its own step says."""
        wanted = frozenset(names)
        return {name: step.places for name, step in self.steps.items() if name in wanted}

    def recipe(self, chosen: Mapping[str, Places]) -> Recipe:
        """The recipe of a choice."""
        return Recipe(
            *(replace(step, places=chosen[name]) for name, step in self.steps.items() if name in chosen)
        )


def _insert(steps: list[Step], step: Step, *, ahead: list[str]) -> None:
    """Behind the last step that stands in front of it in the standard recipe."""
    places = [place for place, known in enumerate(steps) if known.name in ahead]
    steps.insert(max(places, default=-1) + 1, step)
