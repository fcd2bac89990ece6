"""`daceml verify`: is a compiled model as close to float64 as PyTorch is?"""

from __future__ import annotations

import json
from typing import Annotated

import typer

from daceml.cli import options
from daceml.cli.inputs import make_inputs
from daceml.cli.model_reference import resolve


def verify(
    model: options.Model,
    inputs: options.Inputs = None,
    dims: options.Dims = None,
    seeds: Annotated[int, typer.Option(min=1, help="sets of inputs to run.")] = 1,
    train: options.Train = False,
    as_json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """Compare a compiled model with PyTorch, both beside float64; exit 1 if it is too far away."""
    import daceml

    module = resolve(model, train=train)
    verification = daceml.verify(module, *make_inputs(module, inputs or (), dims or ()), seeds=seeds)
    typer.echo(json.dumps(verification.to_json(), indent=2) if as_json else str(verification))
    raise typer.Exit(0 if verification.passed else 1)
