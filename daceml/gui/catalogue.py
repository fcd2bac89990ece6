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
        own: a recipe of the user's, whose passes come besides the standard ones and take the place of those
            of the same name.
    """

    def __init__(self, situation: Situation, own: Recipe | None = None) -> None:
        steps = list(standard_recipe().when(situation))
        for step in () if own is None else own.when(situation):
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
        return {name: self.steps[name].places for name in self.steps if name in set(names)}

    def recipe(self, chosen: Mapping[str, Places]) -> Recipe:
        """The recipe of a choice."""
        return Recipe(
            *(replace(step, places=chosen[name]) for name, step in self.steps.items() if name in chosen)
        )


def _put(steps: list[Step], step: Step, own: Recipe | None) -> None:
    """In the place of the step of its name, else behind what precedes it in the user's recipe."""
    names = [known.name for known in steps]
    if step.name in names:
        steps[names.index(step.name)] = step
        return
    ahead = [] if own is None else [known.name for known in own]
    ahead = ahead[: ahead.index(step.name)]
    behind = max((names.index(name) + 1 for name in ahead if name in names), default=len(steps))
    steps.insert(behind, step)
