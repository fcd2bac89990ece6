"""`daceml verify`: errors of a compiled model and of eager PyTorch against float64."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from daceml.cli import options
from daceml.cli.failing_inputs import blamed_on_inputs
from daceml.cli.inputs import make_inputs
from daceml.cli.model_reference import resolve
from daceml.cli.work import working


def verify(
    model: options.Model,
    inputs: options.Inputs = None,
    inputs_file: options.InputsFile = None,
    dims: options.Dims = None,
    seeds: Annotated[int, typer.Option(min=1, help="number of sets of inputs")] = 1,
    intermediate: Annotated[
        bool,
        typer.Option(
            "--intermediate", help="comparison of every intermediate value, even if all results pass"
        ),
    ] = False,
    train: options.Train = False,
    wide: options.Wide = False,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
    debug: options.Debug = False,
) -> None:
    """Compare a compiled model and eager PyTorch with float64; exit 1 if an error exceeds its limit.

    --train also compares gradients of inputs and parameters. If a result exceeds its limit, the first
    intermediate value that does is named, with its operator and line. For a gradient, none is named.
    """
    with working(quiet=quiet, imports_torch=True):
        import daceml

        module = resolve(model, train=train)
        call = make_inputs(module, inputs, dims, inputs_file)
        with blamed_on_inputs(module, call):
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
