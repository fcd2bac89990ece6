"""What a recipe that the page exported does when it is run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import typer

from daceml.cli.inputs import make_inputs
from daceml.cli.model_reference import resolve
from daceml.errors import ConfigurationError, DacemlError

if TYPE_CHECKING:
    from daceml.transformations.recipe import Recipe


def replay_recipe(target: str, recipe: Recipe, *, hash: str, inputs: Sequence[str], training: bool) -> None:
    """Make the program of a recipe anew, and say whether it is the one that was exported.

    Args:
        target: names the model, as the commands take it; paths are relative to the current folder.
        hash: of the exported program.
        inputs: as `--input` takes them.
    Raises:
        SystemExit: with 1 where it is another program, or none can be made.
    """
    from torch import nn

    from daceml.exploration.guided.recipe_script import check_recipe

    try:
        module = resolve(target, train=training)
        if not isinstance(module, nn.Module):
            raise ConfigurationError(f"{target} is not a module", fix="give path.py:Name")
        call = make_inputs(module, inputs)
        check_recipe(module, call.args, recipe, hash=hash, training=training)
    except DacemlError as error:
        typer.echo(str(error), err=True)
        raise SystemExit(1) from error
    typer.echo(f"the same program: {hash}")
