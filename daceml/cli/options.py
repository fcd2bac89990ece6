"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from daceml.text_tables import wide_tables


def _show_wide(context: typer.Context, wanted: bool) -> bool:
    if wanted:
        context.with_resource(wide_tables())
    return wanted


Model = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        help="path.py:Name, package.module:Name or a .onnx file",
    ),
]
Inputs = Annotated[
    list[str] | None,
    typer.Option(
        "--input",
        "-i",
        metavar="SHAPE[:TYPE][=LOW..HIGH]",
        help="input tensor, repeatable, in order: 8,3,224,224 or 2,128:int64=0..999",
    ),
]
InputsFile = Annotated[
    Path | None,
    typer.Option(
        "--inputs",
        metavar="FILE",
        help="saved inputs: .npz or .pt, by position or by keyword",
    ),
]
Dims = Annotated[
    list[str] | None,
    typer.Option("--dim", metavar="NAME=SIZE", help="size of a named dimension of a .onnx file (default 2)"),
]
Ranks = Annotated[
    list[int] | None,
    typer.Option(
        "--ranks",
        metavar="N",
        help="number of data-parallel devices, each with the samples of the call; repeatable",
    ),
]
Train = Annotated[bool, typer.Option("--train", help="training mode (default: eval mode)")]
Json = Annotated[bool, typer.Option("--json", help="JSON output")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="no progress on the terminal")]
Wide = Annotated[
    bool,
    typer.Option("--wide", help="all columns of tables, and nothing shortened", callback=_show_wide),
]
Debug = Annotated[bool, typer.Option("--debug", help="traceback of an error")]
Search = Annotated[
    bool,
    typer.Option(
        "--search",
        help="fastest measured variation of the standard recipe, within DACEML_SEARCH_BUDGET_S",
    ),
]


def mode_note(*, train: bool) -> str:
    """Return the mode of a model in the first line of a result, and the option that changes it."""
    return "training mode (without --train: eval mode)" if train else "eval mode (--train: training mode)"
