"""`daceml explain`: what is made of a model, what it moves and computes, and what was refused and why."""

from __future__ import annotations

import json

import typer

from daceml.cli import options
from daceml.cli.inputs import make_inputs
from daceml.cli.model_reference import resolve


def explain(
    model: options.Model,
    inputs: options.Inputs = None,
    dims: options.Dims = None,
    train: options.Train = False,
    as_json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """Compile a model and say what became of it."""
    import daceml

    module = resolve(model, train=train)
    explanation = daceml.explain(module, *make_inputs(module, inputs or (), dims or ()))
    typer.echo(json.dumps(explanation.to_json(), indent=2) if as_json else str(explanation))
