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
        own: the user's passes, which come besides the standard ones and take the place of those of the same
            name.
    """

    def __init__(self, situation: Situation, own: Recipe) -> None:
        steps = list(standard_recipe().when(situation))
        for step in own.when(situation):
            _put(steps, step, own)
        self.steps: Mapping[str, Step] = {step.name: step for step in Recipe(*steps).ordered()}
        if len(self.steps) < len(steps):
            raise ConfigurationError(
                "a pass stands in the recipe twice",
                why="passes of a guided optimisation are told apart by their names",
                fix="give each a name of its own",
            )

    def everything(self, names: Iterable[str]) -> dict[str, Places]:
        """The choice of these passes, each everywhere or where its own step says."""
        wanted = frozenset(names)
        return {name: step.places for name, step in self.steps.items() if name in wanted}

    def recipe(self, chosen: Mapping[str, Places]) -> Recipe:
        """The recipe of a choice."""
        return Recipe(
            *(replace(step, places=chosen[name]) for name, step in self.steps.items() if name in chosen)
        )


def _put(steps: list[Step], step: Step, own: Recipe) -> None:
    """In the place of the step of its name, else behind what precedes it among the user's."""
    names = [known.name for known in steps]
    if step.name in names:
        steps[names.index(step.name)] = step
        return
    ahead = [known.name for known in own[: own.place(step.name)]]
    behind = max((names.index(name) + 1 for name in ahead if name in names), default=len(steps))
    steps.insert(behind, step)
