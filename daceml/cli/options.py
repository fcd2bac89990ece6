"""Options that several commands share."""

from __future__ import annotations

from typing import Annotated

import typer

Model = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        help="path.py:Name, package.module:Name or a .onnx file. Name is a module class without required "
        "arguments, an instance, or a function without arguments that returns one.",
    ),
]
Inputs = Annotated[
    list[str] | None,
    typer.Option(
        "--input",
        "-i",
        metavar="SHAPE[:TYPE]",
        help="an input such as 8,3,224,224 or 2,128:int64; repeat it for each input, in order. "
        "Floats are drawn from the normal distribution, integers are 0 or 1. A .onnx file knows its own.",
    ),
]
Dims = Annotated[
    list[str] | None,
    typer.Option("--dim", metavar="NAME=SIZE", help="size of a named dimension of a .onnx file; default 2."),
]
Train = Annotated[bool, typer.Option("--train", help="in training mode; eval mode is the default.")]
Json = Annotated[bool, typer.Option("--json", help="print JSON.")]
Debug = Annotated[bool, typer.Option("--debug", help="print the traceback of an error, too.")]
