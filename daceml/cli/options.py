"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
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
        metavar="SHAPE[:TYPE][=LOW..HIGH]",
        help="an input; repeat it for each, in order. 8,3,224,224 is float32 from the normal distribution; "
        "2,128:int64=0..999 are whole numbers from 0 to 999, both included (0..1 without a range); "
        "4:float32=-1..1 are numbers between -1 and 1; 4=1 are ones; :bool is a scalar. "
        "A .onnx file knows its own inputs.",
    ),
]
InputsFile = Annotated[
    Path | None,
    typer.Option(
        "--inputs",
        metavar="FILE",
        help="all inputs from a file: .npz (arr_0, arr_1, … by position, other names as keywords), or .pt "
        "with a tensor, a tuple or list (by position) or a dictionary (keywords).",
    ),
]
Dims = Annotated[
    list[str] | None,
    typer.Option(
        "--dim", metavar="NAME=SIZE", help="size of a named dimension of a .onnx file for inputs; default 2."
    ),
]
Ranks = Annotated[
    list[int] | None,
    typer.Option(
        "--ranks",
        metavar="N",
        help="of the other devices, data-parallel, each with as many samples as the call; times are for "
        "those of one call; repeatable.",
    ),
]
Train = Annotated[bool, typer.Option("--train", help="in training mode; eval mode is the default.")]
Json = Annotated[bool, typer.Option("--json", help="print JSON.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="no progress on the terminal.")]
Debug = Annotated[bool, typer.Option("--debug", help="print the traceback of an error, too.")]
Search = Annotated[
    bool,
    typer.Option(
        "--search",
        help="measure variations of the standard recipe, and take one that is faster; "
        "DACEML_SEARCH_BUDGET_S has the seconds.",
    ),
]
