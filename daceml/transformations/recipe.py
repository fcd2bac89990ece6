"""Recipes: lists of passes as data, which can be printed, stored, cut, joined and gone through step by step.

A pass is anything that takes a network and mutates it: a `Rewrite`, or a function such as `fuse_maps`. What
it did and refused it adds to `Network.passes` itself.
"""

from __future__ import annotations

import importlib
import inspect
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, overload

from daceml.errors import ConfigurationError
from daceml.sdfg.network import Network
from daceml.transformations.rewrite import Rewrite


@dataclass(frozen=True, eq=False)
class Step:
    """One pass of a recipe.

    Attributes:
        run: takes the network, and the options by name.
        options: plain data, so that they can be stored.
    """

    run: Callable[..., Any]
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def __post_init__(self) -> None:
        if inspect.isclass(self.run) or not callable(self.run):
            given = f"the class {self.run.__name__}" if inspect.isclass(self.run) else repr(self.run)
            raise ConfigurationError(
                f"{given} is no pass",
                why="a pass takes a network: a function, or an instance of a rewrite",
                fix="write for example Recipe(fuse_maps, MishLifting())",
            )

    @property
    def name(self) -> str:
        """Of the function, or of the class of a rewrite."""
        return getattr(self.run, "__name__", "") or type(self.run).__name__

    @property
    def summary(self) -> str:
        """The first line of its docstring."""
        text = (self.run.__doc__ or "").strip()
        return text.splitlines()[0] if text else ""

    def __call__(self, network: Network) -> Any:
        """Run the pass."""
        return self.run(network, **self.options)

    def to_data(self) -> dict[str, Any]:
        """Where the pass is found, and its options.

        Raises:
            ConfigurationError: it is defined inside a function, where nothing finds it again.
        """
        made = self.run if hasattr(self.run, "__qualname__") else type(self.run)
        path = f"{made.__module__}:{made.__qualname__}"
        options = dict(self.options if made is self.run else vars(self.run))
        if (reason := self._not_storable(made, path, options)) is not None:
            raise ConfigurationError(
                f"pass {self.name} cannot be stored",
                why=reason,
                fix="define a function, or a rewrite whose arguments are its attributes, in a module",
            )
        return {"pass": path, "options": options}

    def _not_storable(self, made: Any, path: str, options: Mapping[str, Any]) -> str | None:
        if "<" in path:
            return f"{path} is defined inside a function"
        if made is self.run:
            plain = inspect.isfunction(self.run)
            return None if plain else f"a {type(self.run).__name__} is neither a function nor a rewrite"
        if not isinstance(self.run, Rewrite):
            return f"a {made.__name__} is neither a function nor a rewrite"
        taken = set(inspect.signature(made).parameters)
        return (
            None
            if set(options) == taken
            else f"it has {sorted(options)}, and its __init__ takes {sorted(taken)}"
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Step) or dict(self.options) != dict(other.options):
            return False
        if isinstance(self.run, Rewrite) and isinstance(other.run, Rewrite):
            return type(self.run) is type(other.run) and vars(self.run) == vars(other.run)
        return self.run == other.run

    __hash__ = None  # pyright: ignore[reportAssignmentType]

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Step:
        """The step that `to_data` describes.

        Raises:
            ConfigurationError: there is no such pass in this process.
        """
        module, _, name = str(data["pass"]).partition(":")
        try:
            found: Any = importlib.import_module(module)
            for part in name.split("."):
                found = getattr(found, part)
        except (ImportError, AttributeError) as error:
            raise ConfigurationError(
                f"there is no pass {data['pass']}",
                why=str(error),
                fix="import the module that defines it, or leave the step out: recipe.without(name)",
            ) from error
        options = dict(data["options"])
        if isinstance(found, type) and issubclass(found, Rewrite):
            return cls(found(**options))
        return cls(found, options)


class Recipe:
    """An ordered list of passes; every method gives a new one.

    `recipe[2:]` goes on from a point, `one + other` joins, `recipe(network)` runs.
    """

    takes_network = True  # as a hook

    def __init__(self, *passes: Callable[..., Any] | Step) -> None:
        self.steps = tuple(p if isinstance(p, Step) else Step(p) for p in passes)

    def __call__(
        self, network: Network, observe: Callable[[Step, Network], None] | None = None
    ) -> dict[str, Any]:
        """Run all passes. Mutates the network.

        Args:
            observe: is called after each pass, to look at the network or to check it.
        Returns:
            name of a pass -> what it returned, the last time that it ran.
        """
        found: dict[str, Any] = {}
        for step in self.steps:
            found[step.name] = step(network)
            if observe is not None:
                observe(step, network)
        return found

    def __len__(self) -> int:
        return len(self.steps)

    def __iter__(self) -> Iterator[Step]:
        return iter(self.steps)

    @overload
    def __getitem__(self, place: int) -> Step: ...
    @overload
    def __getitem__(self, place: slice) -> Recipe: ...
    def __getitem__(self, place: int | slice) -> Step | Recipe:
        return Recipe(*self.steps[place]) if isinstance(place, slice) else self.steps[place]

    def __add__(self, other: Recipe) -> Recipe:
        return Recipe(*self.steps, *other.steps)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Recipe) and self.steps == other.steps

    __hash__ = None  # pyright: ignore[reportAssignmentType]

    def place(self, name: str) -> int:
        """Where the first pass of this name stands.

        Raises:
            ConfigurationError: there is none.
        """
        names = [step.name for step in self.steps]
        if name not in names:
            raise ConfigurationError(
                f"the recipe has no pass {name!r}",
                why=f"it has {', '.join(names) or 'none'}",
                fix="print(recipe) shows the names",
            )
        return names.index(name)

    def before(self, name: str, *passes: Callable[..., Any] | Step) -> Recipe:
        """With further passes in front of one."""
        return self._with(self.place(name), passes)

    def after(self, name: str, *passes: Callable[..., Any] | Step) -> Recipe:
        """With further passes behind one."""
        return self._with(self.place(name) + 1, passes)

    def without(self, name: str) -> Recipe:
        """Without every pass of this name."""
        self.place(name)
        return Recipe(*(step for step in self.steps if step.name != name))

    def _with(self, place: int, passes: tuple[Callable[..., Any] | Step, ...]) -> Recipe:
        return Recipe(*self.steps[:place], *passes, *self.steps[place:])

    def to_data(self) -> list[dict[str, Any]]:
        """Plain data; see `Step.to_data`."""
        return [step.to_data() for step in self.steps]

    def to_json(self) -> str:
        """As text that `from_json` takes."""
        return json.dumps(self.to_data(), indent=2)

    @classmethod
    def from_json(cls, text: str) -> Recipe:
        """The recipe that `to_json` wrote.

        Raises:
            ConfigurationError: the text is something else, or names a pass that this process does not have.
        """
        fix = "give the text that Recipe.to_json wrote"
        try:
            rows = json.loads(text)
        except json.JSONDecodeError as error:
            raise ConfigurationError("the text is no recipe", why=str(error), fix=fix) from error
        if not isinstance(rows, list) or not all(
            isinstance(row, dict) and {"pass", "options"} <= row.keys() for row in rows
        ):
            raise ConfigurationError(
                "the text is no recipe", why="a recipe is a list of objects with pass and options", fix=fix
            )
        return cls(*map(Step.from_data, rows))

    def __str__(self) -> str:
        width = max((len(step.name) for step in self.steps), default=0)
        rows = enumerate(self.steps, 1)
        return "\n".join(
            f"{number:>2}  {step.name:<{width}}  {step.summary}".rstrip() for number, step in rows
        )


def first_wrong(
    recipe: Recipe, make: Callable[[], Network], agrees: Callable[[Network], bool]
) -> Step | None:
    """The pass that makes a network wrong, found by bisection: in 10 runs among 1,000.

    Args:
        make: a fresh network, before any pass.
        agrees: whether a network, which it may mutate, still gives the right values.
    Returns:
        None where the whole recipe is right.
    Raises:
        ConfigurationError: the network is wrong before any pass.
    """

    def right(count: int) -> bool:
        network = make()
        recipe[:count](network)
        return agrees(network)

    if right(len(recipe)):
        return None
    if not right(0):
        raise ConfigurationError("the network is wrong before any pass", fix="look at how it is made")
    low, high = 0, len(recipe)  # right after `low` passes, wrong after `high`
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if right(middle) else (low, middle)
    return recipe[high - 1]
