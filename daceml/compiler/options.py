"""The options of a compiled module, checked where they are given."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any, Literal, TypedDict, cast

from daceml.compiler.stages.recomputation import Recompute, check_recomputation
from daceml.config import config
from daceml.errors import ConfigurationError

if TYPE_CHECKING:
    from daceml.transformations.recipe import Recipe


AutoOptimize = bool | Literal["search"]
_AUTO_OPTIMIZE = (True, False, "recipe", "search")


class ModuleOptions(TypedDict):
    """Options of `dace_module`, `compile` and `DaceModule`.

    Attributes:
        backward: whether results carry gradients where something requires them. Without it they are detached.
        dynamic_shapes: as in torch.export: which dimensions are symbolic, for every argument.
        dynamic: make every dimension symbolic that the module allows to be.
        auto_optimize: which transformations are applied. True, or "recipe": the standard recipe; "search": a
            variation of it that was measured to be faster for the first call of a kind; False: operators are
            lowered and no more.
        search_budget_s: seconds that a search may take, checked between compilations; None for
            `DACEML_SEARCH_BUDGET_S`.
        freeze: parameters and buffers do not change any more: no call looks whether they have.
        recompute: what the backward pass computes again instead of finding it in memory: "none"; "cheap", the
            default: what costs no more than to store it, and what spares the most memory for 3 % of the step;
            "budget", whatever keeps `memory_budget_bytes`.
        memory_budget_bytes: of a training step at its peak, parameters and gradients included.
        prefer_native: derive every gradient from the operators' lowered form, rules or not.
        recipe: the passes that take the place of the standard ones, over forward and backward pass.
        cuda_graphs: capture what a call launches on a CUDA device, and replay it. Sizes that change need a
            graph each.
        verify: run the network before and after the passes, in float64 too, and name a pass that changes
            values. Once for each program, when it is compiled.
        fullgraph: raise an error, with the reason, where forward cannot be traced, translated or
            differentiated. Where hooks of submodules keep values, or forward has effects of Python, all of
            it runs eagerly, and the log says why. Without it, forward is cut there, and the remainder runs
            eagerly. None for `DACEML_FULLGRAPH`.
        ranges: profilers see a range for each step of a program, named by its label and modules: an operator
            in torch's profiler, a range of the domain `daceml` in tools that read NVTX.
    """

    backward: bool
    dynamic_shapes: Any
    dynamic: bool
    auto_optimize: AutoOptimize
    search_budget_s: float | None
    freeze: bool
    recompute: Recompute
    memory_budget_bytes: int | None
    prefer_native: bool
    recipe: Recipe | None
    cuda_graphs: bool
    verify: bool
    ranges: bool
    fullgraph: bool | None


_DEFAULTS = ModuleOptions(
    backward=True,
    dynamic_shapes=None,
    dynamic=False,
    auto_optimize=True,
    search_budget_s=None,
    freeze=False,
    recompute="cheap",
    memory_budget_bytes=None,
    prefer_native=False,
    recipe=None,
    cuda_graphs=False,
    verify=False,
    ranges=False,
    fullgraph=None,
)


def module_options(given: dict[str, Any]) -> ModuleOptions:
    """All options, defaults filled in.

    Raises:
        ConfigurationError: an unknown option, or a value of another type.
    """
    for name, value in given.items():
        if name not in _DEFAULTS:
            close = difflib.get_close_matches(name, _DEFAULTS, n=1)
            raise ConfigurationError(
                f"unknown option {name!r} of dace_module",
                why=f"options are {', '.join(_DEFAULTS)}",
                fix=f"did you mean {close[0]!r}?" if close else "remove it",
            )
        if name == "auto_optimize":
            _check_auto_optimize(value)
        elif _is_switch(name) and not isinstance(value, bool) and value is not _DEFAULTS[name]:
            raise ConfigurationError(
                f"option {name!r} of dace_module must be True or False",
                why=f"it is {value!r}",
                fix=f"write {name}=True or {name}=False",
            )
    options = cast(ModuleOptions, _DEFAULTS | given)
    if options["fullgraph"] is None:
        options["fullgraph"] = config().fullgraph
    if cast(object, options["auto_optimize"]) == "recipe":
        options["auto_optimize"] = True
    _check_budget(options)
    if options["dynamic"] and options["dynamic_shapes"] is not None:
        raise ConfigurationError(
            "dynamic=True and dynamic_shapes were both given",
            why="one leaves every dimension open, the other names those that are",
            fix="keep dynamic_shapes if you know which dimensions change, else dynamic=True",
        )
    check_recomputation(options["recompute"], options["memory_budget_bytes"])
    if options["freeze"] and not options["auto_optimize"]:
        raise ConfigurationError(
            "freeze=True and auto_optimize=False were both given",
            why="weights are put into another order by the levels of transformations",
            fix="leave auto_optimize out, or freeze",
        )
    if options["recipe"] is not None:
        options["recipe"] = _checked_recipe(options["recipe"], auto_optimize=options["auto_optimize"])
    return options


def _is_switch(name: str) -> bool:
    return name == "fullgraph" or isinstance(_DEFAULTS[name], bool)


def _check_auto_optimize(value: object) -> None:
    if not any(value is known or (isinstance(value, str) and value == known) for known in _AUTO_OPTIMIZE):
        raise ConfigurationError(
            "option 'auto_optimize' must be True, False, 'recipe' or 'search'",
            why=f"it is {value!r}",
            fix="'recipe', or True, is the standard recipe; 'search' measures variations of it",
        )


def _check_budget(options: ModuleOptions) -> None:
    budget_s: Any = options["search_budget_s"]
    if budget_s is None:
        return
    if options["auto_optimize"] != "search":
        raise ConfigurationError(
            "search_budget_s was given and nothing is searched",
            why=f"auto_optimize is {options['auto_optimize']!r}",
            fix='write auto_optimize="search", or leave search_budget_s out',
        )
    if isinstance(budget_s, bool) or not isinstance(budget_s, int | float) or not budget_s >= 0:
        raise ConfigurationError(
            "option 'search_budget_s' must be a number of seconds, at least 0",
            why=f"it is {budget_s!r}",
            fix="give seconds, for example 120",
        )


def _checked_recipe(given: object, *, auto_optimize: AutoOptimize) -> Recipe:
    """A recipe in the order in which it runs."""
    from daceml.transformations.recipe import Recipe

    if not isinstance(given, Recipe):
        kind = f"the class {given.__name__}" if isinstance(given, type) else f"a {type(given).__name__}"
        raise ConfigurationError(
            "option 'recipe' of dace_module must be a Recipe",
            why=f"it is {kind}",
            fix="write recipe=standard_recipe() + Recipe(my_pass), both of daceml.transformations",
        )
    if auto_optimize == "search":
        raise ConfigurationError(
            'recipe and auto_optimize="search" were both given',
            why="a search tries variations of the standard recipe, and a recipe of yours takes its place",
            fix="leave one of them out",
        )
    if not auto_optimize:
        raise ConfigurationError(
            "recipe and auto_optimize=False were both given",
            why="a recipe says which transformations are applied, and auto_optimize=False that none are",
            fix="leave auto_optimize out; Recipe() applies none, either",
        )
    return given.ordered()
