"""`daceml verify`: is a compiled model as close to float64 as PyTorch is, and if not, where not?"""

from __future__ import annotations

import json
from typing import Annotated

import typer

from daceml.cli import options
from daceml.cli.inputs import make_inputs
from daceml.cli.model_reference import resolve
from daceml.cli.work import working


def verify(
    model: options.Model,
    inputs: options.Inputs = None,
    inputs_file: options.InputsFile = None,
    dims: options.Dims = None,
    seeds: Annotated[int, typer.Option(min=1, help="sets of inputs to run.")] = 1,
    intermediate: Annotated[
        bool,
        typer.Option("--intermediate", help="compare every intermediate value, also where all results pass."),
    ] = False,
    train: options.Train = False,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
    debug: options.Debug = False,
) -> None:
    """Compare a compiled model with PyTorch, both beside float64; exit 1 if it is too far away.

    With --train, gradients of inputs and parameters are compared as well. Where a result is too far away, the
    first intermediate value that is gets named, with operator and line.
    """
    with working(quiet=quiet):
        import daceml

        module = resolve(model, train=train)
        call = make_inputs(module, inputs, dims, inputs_file)
        verification = daceml.verify(
            module,
            *call.args,
            seeds=seeds,
            intermediate=intermediate,
            gradients=train,
            keywords=call.kwargs,
        )
    text = json.dumps(verification.to_json(), indent=2) if as_json else str(verification)
    typer.echo(text.rstrip("\n"))
    raise typer.Exit(0 if verification.passed else 1)
