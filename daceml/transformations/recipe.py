"""Recipes: lists of passes as data, which can be printed, stored, cut, joined and gone through step by step.

A pass is anything that takes a network and mutates it: a `Rewrite`, or a function such as `fuse_maps`. What
it did and refused it may add to `Network.passes`; of a pass that adds nothing its name is noted, and how
often it applied where it returns a number, as DaCe's own `apply_transformations_repeated` does.

Every pass belongs to a level, and compilation runs a recipe level by level, within a level in its order:
`coarse` sees ONNX operators before differentiation; `operators` sees them behind it, forward and backward
pass one after the other; `local`, `layout` and `hardware` see the loops that operators have become.
"""

from __future__ import annotations

import difflib
import inspect
import json
import textwrap
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args, overload

from daceml.errors import ConfigurationError
from daceml.sdfg.network import Network
from daceml.sdfg.passes import Level, PassRecord
from daceml.transformations.rewriting.rewrite import Rewrite
from daceml.transformations.stored_passes import find_pass, pass_path, remember_pass

LEVELS: tuple[Level, ...] = get_args(Level)
LOOPS: tuple[Level, ...] = ("local", "layout", "hardware")
Situation = Literal["inference", "frozen", "training"]
"""What is compiled: a network, one whose weights do not change any more, or a training step."""

_LINE = 79
_OWN = "daceml.transformations."


@dataclass(frozen=True, eq=False)
class Step:
    """One pass of a recipe.

    Attributes:
        run: takes the network, and the options by name.
        options: plain data, so that they can be stored.
        at: the level; None for the attribute `level` of `run`, or the folder of daceml that it comes from.
        only: the situations in which it runs; all where empty.
        places: arrays, as `PassRecord.places` names them, which are all that a pass marked `by_place`
            changes; None where it works everywhere.
    """

    run: Callable[..., Any]
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    at: Level | None = None
    only: tuple[Situation, ...] = ()
    places: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        self._check("at", () if self.at is None else (self.at,), LEVELS)
        self._check("only", self.only, get_args(Situation))
        if inspect.isclass(self.run) or not callable(self.run):
            given = f"the class {self.run.__name__}" if inspect.isclass(self.run) else repr(self.run)
            raise ConfigurationError(
                f"{given} is not a pass",
                why="a pass takes a network: a function, or an instance of a rewrite",
                fix="write for example Recipe(fuse_maps, OneRelu())",
            )
        if self.places is not None and not self.takes_places:
            raise ConfigurationError(
                f"pass {self.name} cannot be told its places",
                why="it does not ask for each place whether it may change it",
                fix="leave places out; a rewrite, and a function marked by_place, take them",
            )

    def _check(self, field: str, given: tuple[str, ...], known: tuple[str, ...]) -> None:
        for word in given:
            if word not in known:
                raise ConfigurationError(
                    f"{field} of a step cannot be {word!r}", why=f"it is one of {', '.join(known)}"
                )

    @property
    def name(self) -> str:
        """Of the function, or of the class of a rewrite."""
        return getattr(self.run, "__name__", "") or type(self.run).__name__

    @property
    def takes_places(self) -> bool:
        """Whether a recipe may say where it works."""
        return bool(getattr(self.run, "by_place", False))

    @property
    def level(self) -> Level | None:
        """Where compilation runs it; None where nobody says so."""
        if self.at is not None:
            return self.at
        folder = (getattr(self.run, "__module__", "") or "").removeprefix(_OWN).partition(".")[0]
        known = getattr(self.run, "level", folder)
        return known if known in LEVELS else None

    @property
    def summary(self) -> str:
        """The first sentence of its docstring, or its first line where that is shorter."""
        text = (self.run.__doc__ or "").strip()
        return text.splitlines()[0].partition(". ")[0].removesuffix(".") if text else ""

    def __call__(self, network: Network) -> Any:
        """Run the pass. Mutates the network.

        Raises:
            Exception: what the pass raises, with a note that names it.
        """
        records = len(network.passes)
        network.places = None if self.places is None else frozenset(self.places)
        try:
            found = self.run(network, **self.options)
        except Exception as error:
            error.add_note(f"raised by pass {self.name} of a recipe")
            raise
        finally:
            network.places = None
        if len(network.passes) == records:
            count = found if isinstance(found, int) and not isinstance(found, bool) else 0
            applied = {self.name: count} if count else {}
            record = PassRecord(level=self.level or "local", name=self.name, applied=applied)
            network.passes.append(record)
        network.passes[records:] = [replace(record, by=self.name) for record in network.passes[records:]]
        return found

    def to_data(self) -> dict[str, Any]:
        """Where the pass is found, and its options.

        Raises:
            ConfigurationError: it is defined inside a function, where nothing finds it again.
        """
        made = self.run if hasattr(self.run, "__qualname__") else type(self.run)
        path = pass_path(made)
        options = dict(self.options if made is self.run else vars(self.run))
        if (reason := self._not_storable(made, path, options)) is not None:
            raise ConfigurationError(
                f"pass {self.name} cannot be stored",
                why=reason,
                fix="define a function, or a rewrite whose arguments are its attributes, in a module",
            )
        remember_pass(made)
        said: dict[str, Any] = {"pass": path, "options": options}
        if self.at is not None:
            said["at"] = self.at
        if self.only:
            said["only"] = list(self.only)
        if self.places is not None:
            said["places"] = list(self.places)
        return said

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
        if (self.at, self.only, self.places) != (other.at, other.only, other.places):
            return False
        if isinstance(self.run, Rewrite) and isinstance(other.run, Rewrite):
            return type(self.run) is type(other.run) and vars(self.run) == vars(other.run)
        return self.run == other.run

    __hash__ = None  # pyright: ignore[reportAssignmentType]

    @classmethod
    def from_data(cls, data: Mapping[str, Any], *, modules: Collection[str] = ()) -> Step:
        """The step that `to_data` describes.

        Args:
            modules: as in `Recipe.from_json`.
        Raises:
            ConfigurationError: there is no such pass, it may not be named, or does not take the options.
        """
        found: Any = find_pass(str(data["pass"]), modules)
        try:
            options, places = dict(data["options"]), data.get("places")
            place = data.get("at"), tuple(data.get("only", ())), None if places is None else tuple(places)
            if inspect.isclass(found):
                found, options = found(**options), {}
        except (TypeError, ValueError) as error:
            raise ConfigurationError(
                f"pass {data['pass']} does not take the options {data['options']}",
                why=str(error),
                fix="give the text that Recipe.to_json wrote",
            ) from error
        return cls(found, options, *place)


class Recipe:
    """An ordered list of passes; every method gives a new one.

    `recipe[2:]` goes on from a point, `one + other` joins, `recipe(network)` runs.
    """

    takes_network = True  # as a hook
    checked = True  # whether compilation validates the network after each pass

    def __init__(self, *passes: Callable[..., Any] | Step) -> None:
        self.steps = tuple(p if isinstance(p, Step) else Step(p) for p in passes)

    def unchecked(self) -> Recipe:
        """The same, of passes that are sure to leave a valid network: compiled without looking at it."""
        made = Recipe(*self.steps)
        made.checked = False
        return made

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
            known = dict.fromkeys(names)
            close = difflib.get_close_matches(name, known, n=1)
            raise ConfigurationError(
                f"the recipe has no pass {name!r}",
                why=f"it has {', '.join(known) or 'none'}",
                fix=f"did you mean {close[0]!r}?" if close else "print(recipe) shows the names",
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

    def at(self, *levels: Level) -> Recipe:
        """Only the passes of these levels."""
        return Recipe(*(step for step in self.steps if step.level in levels))

    def when(self, situation: Situation) -> Recipe:
        """Only the passes that run in a situation."""
        return Recipe(*(step for step in self.steps if not step.only or situation in step.only))

    def ordered(self) -> Recipe:
        """Level by level, as compilation runs it; within a level the order stays.

        Raises:
            ConfigurationError: a pass does not say at which level it works.
        """
        homeless = next((step.name for step in self.steps if step.level is None), None)
        if homeless is not None:
            raise ConfigurationError(
                f"pass {homeless} does not say at which level it works",
                why=f"levels are {', '.join(LEVELS)}: the first two see ONNX operators, the others loops",
                fix=f'write Step({homeless}, at="local") in the recipe, or set {homeless}.level = "local"',
            )
        return Recipe(*(step for level in LEVELS for step in self.at(level)))

    def _with(self, place: int, passes: tuple[Callable[..., Any] | Step, ...]) -> Recipe:
        return Recipe(*self.steps[:place], *passes, *self.steps[place:])

    def to_data(self) -> list[dict[str, Any]]:
        """Plain data; see `Step.to_data`."""
        return [step.to_data() for step in self.steps]

    def to_json(self) -> str:
        """As text that `from_json` takes."""
        return json.dumps(self.to_data(), indent=2)

    @classmethod
    def from_json(cls, text: str, *, modules: Collection[str] = ()) -> Recipe:
        """The recipe that `to_json` wrote.

        Args:
            modules: names of modules with passes of yours, which are imported. Without them a text finds only
                passes of daceml, passes that this process has stored, and in loaded modules rewrites and
                functions with an attribute `level`: a text from elsewhere runs nothing else.
        Raises:
            ConfigurationError: the text is something else, or names another pass.
        """
        fix = "give the text that Recipe.to_json wrote"
        try:
            rows = json.loads(text)
        except (json.JSONDecodeError, RecursionError) as error:
            raise ConfigurationError("the text is not a recipe", why=str(error), fix=fix) from error
        if not isinstance(rows, list) or not all(
            isinstance(row, dict) and {"pass", "options"} <= row.keys() for row in rows
        ):
            raise ConfigurationError(
                "the text is not a recipe", why="a recipe is a list of objects with pass and options", fix=fix
            )
        return cls(*(Step.from_data(row, modules=modules) for row in rows))

    def __str__(self) -> str:
        names = [f"{step.name} ({', '.join(step.only)})" if step.only else step.name for step in self.steps]
        width = max(map(len, names), default=0)
        left = max(_LINE - width - 6, 20)
        lines: list[str] = []
        level: str | None = ""
        for number, (step, name) in enumerate(zip(self.steps, names, strict=True), 1):
            if step.level != level:
                level = step.level
                lines.append(level or "without a level")
            first, *rest = textwrap.wrap(step.summary, left, break_on_hyphens=False) or [""]
            lines.append(f"{number:>2}  {name:<{width}}  {first}".rstrip())
            lines += [" " * (width + 6) + line for line in rest]
        return "\n".join(lines)


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

    count = fewest_wrong(len(recipe), right)
    return None if count is None else recipe[count - 1]


def fewest_wrong(most: int, right: Callable[[int], bool]) -> int | None:
    """The smallest count that is wrong while one fewer is right, by bisection; None where `most` are right.

    Raises:
        ConfigurationError: none are wrong already.
    """
    if right(most):
        return None
    if not right(0):
        raise ConfigurationError("the network is wrong before any pass", fix="look at how it is made")
    low, high = 0, most
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if right(middle) else (low, middle)
    return high
