"""`daceml export`: a model as a library with a C header, which PyTorch loads, too."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from daceml.cli import options
from daceml.cli.failing_inputs import blamed_on_inputs
from daceml.cli.inputs import make_inputs
from daceml.cli.model_reference import has_fresh_weights, resolve
from daceml.cli.work import working
from daceml.errors import DeploymentError


def export(
    model: options.Model,
    to: Annotated[
        Path, typer.Option("--output", "-o", metavar="DIR", help="new or empty folder for the library")
    ],
    inputs: options.Inputs = None,
    inputs_file: options.InputsFile = None,
    dims: options.Dims = None,
    name: Annotated[
        str, typer.Option("--name", metavar="NAME", help="name of the library, and prefix of its functions")
    ] = "model",
    libtorch: Annotated[
        bool,
        typer.Option("--libtorch", help="torch kernels where they are faster; programs then link to torch"),
    ] = False,
    dynamic: Annotated[
        bool, typer.Option("--dynamic", help="sizes of inputs that may differ from call to call")
    ] = False,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
    debug: options.Debug = False,
) -> None:
    """Write a library that C++ programs run without Python, and that `daceml.load` loads as a module."""
    with working(quiet=quiet, imports_torch=True):
        from torch import nn

        from daceml.deployment.exporting import export as exported

        module = resolve(model)
        if not isinstance(module, nn.Module):
            raise DeploymentError(
                f"{model} is not a module", why="files of ONNX run in ONNX Runtime", fix="give path.py:Name"
            )
        call = make_inputs(module, inputs, dims, inputs_file)
        with blamed_on_inputs(module, call):
            made = exported(
                module, *call.args, to=to, name=name, libtorch=libtorch, dynamic=dynamic, **call.kwargs
            )
    if as_json:
        said = {"folder": str(made.folder), "sha256": made.sha256, "manifest": asdict(made.manifest)}
        typer.echo(json.dumps(said, indent=2))
    else:
        typer.echo(str(made))
    if not quiet and has_fresh_weights(model) and any(True for _ in module.parameters()):
        typer.echo(
            f"{model} is a class: its weights are those that it begins with. To export trained ones, name a "
            "function that loads them, or a module that has them.",
            err=True,
        )
