"""`daceml whatif MODEL`: predicted effects of compiler passes, other devices and more ranks on a model."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from daceml.cli import options
from daceml.cli.inputs import make_inputs
from daceml.cli.model_reference import resolve
from daceml.cli.work import working
from daceml.errors import WhatIfError

if TYPE_CHECKING:
    from daceml.exploration.effects import Effect

Without = Annotated[
    list[str] | None,
    typer.Option(
        "--without",
        metavar="PASS",
        help="pass of the standard recipe, such as fuse_subgraphs; repeatable (default: all)",
    ),
]
With = Annotated[
    list[str] | None,
    typer.Option(
        "--with",
        metavar="ADDITION",
        help="addition to the recipe: bf16, freeze, products-in-loops; repeatable",
    ),
]


def whatif_model(model: str, arguments: Sequence[str], *, as_json: bool) -> None:
    """Parse and answer.

    Args:
        arguments: behind the model.
    """
    _refuse_questions(arguments, model)
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command("whatif")(_effects)
    given = [model, *arguments, *(["--json"] if as_json else [])]
    typer.main.get_command(app).main(given, prog_name="daceml whatif", standalone_mode=False)


def _refuse_questions(arguments: Sequence[str], model: str) -> None:
    from daceml.simulation.whatif.registry import OPTIMIZATIONS

    for argument in arguments:
        option = argument.partition("=")[0]
        if option.startswith("--") and option[2:] in OPTIMIZATIONS:
            raise WhatIfError(
                f"{option} is no question about a model",
                why="it is about a recorded run",
                fix=f"give a trace; or see daceml whatif {model} --help, which has --on H100 for devices",
            )


def _effects(
    model: options.Model,
    inputs: options.Inputs = None,
    inputs_file: options.InputsFile = None,
    train: options.Train = False,
    without: Without = None,
    added: With = None,
    measure: Annotated[
        bool, typer.Option("--measure", help="measured effects, besides predicted ones")
    ] = False,
    on: Annotated[
        list[str] | None,
        typer.Option("--on", metavar="DEVICE", help="device to predict the model on; repeatable"),
    ] = None,
    ranks: options.Ranks = None,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
    debug: options.Debug = False,
) -> None:
    """Predict the effect of compiler passes and additions on a model, among others and alone."""
    if ranks and not on:
        raise WhatIfError("--ranks without a device", fix="name it as well: --on H100 --ranks 8")
    with working(quiet=quiet):
        from torch import nn

        from daceml.exploration.effects import effects
        from daceml.exploration.exploration_request import question
        from daceml.exploration.other_devices import elsewhere
        from daceml.module.module import eager_module
        from daceml.report.effects_text import devices_text, effects_json, effects_text
        from daceml.tuning.model_call import Subject

        module = resolve(model, train=train)
        if not isinstance(module, nn.Module):
            raise WhatIfError(f"{model} is no module", fix="give path.py:Name of a module, or a trace")
        module = eager_module(module)
        call = make_inputs(module, inputs, None, inputs_file)
        subject = Subject(module, call.args, call.kwargs, training=train)
        asked = question(subject, devices=on or (), ranks=ranks or ())
        rows = tuple(elsewhere(module, call.args, call.kwargs, training=train, asked=asked))
        found: tuple[Effect, ...] = ()
        if without or added or not on:
            found = effects(
                module, *call.args, passes=without or (), additions=added or (), training=train,
                measure=measure, **call.kwargs,
            )  # fmt: skip
    if as_json:
        typer.echo(json.dumps(effects_json(found, rows), indent=2))
    else:
        parts = (effects_text(found), devices_text(rows))
        typer.echo("\n\n".join(part for part in parts if part))
