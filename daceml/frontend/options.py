"""The options of a compiled module, checked where they are given."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any, TypedDict, cast

from daceml.errors import ConfigurationError
from daceml.frontend.recomputation import Recompute, check_recomputation

if TYPE_CHECKING:
    from daceml.transformations.recipe import Recipe


class ModuleOptions(TypedDict):
    """Options of `dace_module`, `compile` and `DaceModule`.

    Attributes:
        backward: whether results carry gradients where something requires them. Without it they are detached.
        dynamic_shapes: as in torch.export: which dimensions are symbolic, for every argument.
        dynamic: make every dimension symbolic that the module allows to be.
        auto_optimize: apply the levels of transformations; without it operators are lowered and no more.
        freeze: parameters and buffers do not change any more: kernels keep weights in an order of their own.
        recompute: what the backward pass computes again instead of finding it in memory: "none"; "cheap", the
            default: what costs no more than to store it, and what spares the most memory for 3 % of the step;
            "budget", whatever keeps `memory_budget_bytes`.
        memory_budget_bytes: of a training step at its peak, parameters and gradients included.
        prefer_native: derive every gradient from the operators' lowered form, rules or not.
        recipe: the passes that take the place of the standard ones, over forward and backward pass.
        verify: run the network before and after the passes, in float64 too, and name a pass that changes
            values. Once for each program, when it is compiled.
    """

    backward: bool
    dynamic_shapes: Any
    dynamic: bool
    auto_optimize: bool
    freeze: bool
    recompute: Recompute
    memory_budget_bytes: int | None
    prefer_native: bool
    recipe: Recipe | None
    verify: bool


_DEFAULTS = ModuleOptions(
    backward=True,
    dynamic_shapes=None,
    dynamic=False,
    auto_optimize=True,
    freeze=False,
    recompute="cheap",
    memory_budget_bytes=None,
    prefer_native=False,
    recipe=None,
    verify=False,
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
        if isinstance(_DEFAULTS[name], bool) and not isinstance(value, bool):
            raise ConfigurationError(
                f"option {name!r} of dace_module must be True or False",
                why=f"it is {value!r}",
                fix=f"write {name}=True or {name}=False",
            )
    options = cast(ModuleOptions, _DEFAULTS | given)
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
        options["recipe"] = _checked_recipe(options["recipe"], levels=options["auto_optimize"])
    return options


def _checked_recipe(given: object, *, levels: bool) -> Recipe:
    """A recipe in the order in which it runs."""
    from daceml.transformations.recipe import Recipe

    if not isinstance(given, Recipe):
        kind = f"the class {given.__name__}" if isinstance(given, type) else f"a {type(given).__name__}"
        raise ConfigurationError(
            "option 'recipe' of dace_module must be a Recipe",
            why=f"it is {kind}",
            fix="write recipe=standard_recipe() + Recipe(my_pass), both of daceml.transformations",
        )
    if not levels:
        raise ConfigurationError(
            "recipe and auto_optimize=False were both given",
            why="a recipe says which transformations are applied, and auto_optimize=False that none are",
            fix="leave auto_optimize out; Recipe() applies none, either",
        )
    return given.ordered()
