"""`daceml explain`: applied and refused transformations of a model level by level, and bytes moved."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from daceml.cli import options
from daceml.cli.failing_inputs import blamed_on_inputs
from daceml.cli.inputs import make_inputs
from daceml.cli.model_reference import resolve
from daceml.cli.search import searching
from daceml.cli.work import working


def explain(
    model: options.Model,
    inputs: options.Inputs = None,
    inputs_file: options.InputsFile = None,
    dims: options.Dims = None,
    train: options.Train = False,
    search: options.Search = False,
    every_refusal: Annotated[
        bool, typer.Option("--all", help="every refusal, not only the largest groups")
    ] = False,
    wide: options.Wide = False,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
    debug: options.Debug = False,
) -> None:
    """Compile a model and print its kernels, bytes, applied and refused transformations."""
    with working(quiet=quiet, imports_torch=True):
        from torch import nn

        import daceml

        module = resolve(model, train=train)
        call = make_inputs(module, inputs, dims, inputs_file)
        given = module
        if search:
            module = searching(module)
        elif train and isinstance(module, nn.Module):
            module = daceml.compile(module)  # with its backward pass
        with blamed_on_inputs(given, call):
            explanation = daceml.explain(module, *call.args, **call.kwargs)
    if as_json:
        typer.echo(json.dumps(explanation.to_json(), indent=2))
    else:
        text = explanation.full_text() if every_refusal else str(explanation)
        if not model.endswith(".onnx"):
            both = bool(getattr(explanation, "backward_steps", ()))
            step = "a forward and a backward pass" if both else "a forward pass"
            typer.echo(f"{explanation.name}, {step}; {options.mode_note(train=train)}")
        typer.echo(text.rstrip("\n"))
