"""A guided optimisation as a Python script: the recipe, and a check that it still gives the same program."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from daceml.errors import ReplayError
from daceml.tuning.model_call import Subject
from daceml.tuning.variant import Variant

if TYPE_CHECKING:
    from torch import nn

    from daceml.exploration.guided.guided import Guided
    from daceml.transformations.recipe import Recipe, Step

_HEAD = '''"""{title}: a recipe of a guided optimisation ({call}; {inputs}).

    from {module} import RECIPE
    model = daceml.compile(model, recipe=RECIPE)
{run}"""

'''
_TAIL = """

HASH = "{hash}"

if __name__ == "__main__":
    from daceml.cli.replay_recipe import replay_recipe

    replay_recipe({target!r}, RECIPE, hash=HASH, inputs={inputs!r}, training={training})
"""


def recipe_script(guided: Guided, *, title: str, target: str = "") -> str:
    """What is applied, as a module that has RECIPE and HASH; run, it makes the program anew and compares.

    Args:
        title: name of the model.
        target: how a command line names the model; "": the script only has the recipe.
    """
    target, where = _anywhere(target)
    program = guided.program()
    imports, lines = _steps(guided.recipe.steps)
    inputs = [_input(x) for _, x in guided.inputs]
    call = "forward and backward pass" if guided.training else "inference"
    run = (
        f"\nRun it{where} to see whether it still gives the same program for\n{_plain(target)}.\n"
        if target
        else ""
    )
    text = _HEAD.format(
        title=_plain(title), call=call, inputs=" and ".join(inputs), module="this_file", run=run
    )
    text += (
        _found(guided.recipe.steps)
        + "\n".join(imports)
        + "\n\nRECIPE = Recipe(\n"
        + "".join(f"    {line},\n" for line in lines)
        + ")"
    )
    if not target:
        return text + f'\n\nHASH = "{program.lowered.identity}"\n'
    return text + _TAIL.format(
        hash=program.lowered.identity, target=target, inputs=inputs, training=guided.training
    )


def check_recipe(
    module: nn.Module, args: tuple[Any, ...], recipe: Recipe, *, hash: str, training: bool
) -> None:
    """Make the program of a recipe, and compare it with the one that it was exported with.

    Raises:
        ReplayError: it is another program; DaCe, torch, the model or daceml have changed.
    """
    variant = Variant(recipe=recipe.to_json())
    found = Subject(module, args, {}, training=training).lower(variant).identity
    if found != hash:
        raise ReplayError(
            f"the recipe gives program {found[:12]}, and was exported with {hash[:12]}",
            why="the model, its inputs, torch, DaCe or daceml are others than then",
            fix="look at what it gives now, with daceml gui, and export it again",
        )


def _input(x: torch.Tensor) -> str:
    """As `--input` of the commands takes it."""
    text = ",".join(map(str, x.shape)) + ":" + str(x.dtype).removeprefix("torch.")
    whole = not x.is_floating_point() and x.dtype != torch.bool and x.numel() > 0
    return text + (f"={int(x.min())}..{int(x.max())}" if whole else "")


def _steps(steps: Sequence[Step]) -> tuple[list[str], list[str]]:
    """Imports, and an expression for each step."""
    modules: dict[str, set[str]] = {"daceml.transformations": {"Recipe"}}
    lines: list[str] = []
    for step in steps:
        data = step.to_data()
        module, _, name = str(data["pass"]).partition(":")
        modules.setdefault(module, set()).add(name.partition(".")[0])
        made = hasattr(step.run, "__qualname__")
        run = name if made else f"{name}({_named(data['options'])})"
        rest = [run]
        if made and data["options"]:
            rest.append(repr(dict(data["options"])))
        rest += [f"{key}={_value(data[key])}" for key in ("at", "only", "places") if key in data]
        if len(rest) > 1:
            modules["daceml.transformations"].add("Step")
        lines.append(run if len(rest) == 1 else f"Step({', '.join(rest)})")
    imports = [
        f"from {module} import {', '.join(sorted(names))}" for module, names in sorted(modules.items())
    ]
    return imports, lines


def _anywhere(target: str) -> tuple[str, str]:
    """What names the same model in other folders, too; where that does not, in which folder to run it."""
    place, _, name = target.rpartition(":")
    if place.endswith(".py"):
        return f"{Path(place).resolve()}:{name}", ""
    return target, _plain(f" in {Path.cwd()}, or where {place} can be imported,")


def _found(steps: Sequence[Step]) -> str:
    """Where the files lie that passes of the user's come from, as no path of Python's has them."""
    modules = {str(step.to_data()["pass"]).partition(":")[0] for step in steps}
    files = [getattr(sys.modules.get(name), "__file__", None) for name in sorted(modules) if "." not in name]
    folders = dict.fromkeys(str(Path(file).resolve().parent) for file in files if file)
    lines = [f"sys.path.insert(0, {folder!r})  # passes of its own\n" for folder in folders]
    return "import sys\n\n" + "".join(lines) + "\n" if lines else ""


def _plain(text: str) -> str:
    """As it may stand in a docstring."""
    return text.replace("\\", "/").replace('"', "'")


def _named(options: dict[str, Any]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in options.items())


def _value(value: Any) -> str:
    return repr(tuple(value)) if isinstance(value, list) else repr(value)
