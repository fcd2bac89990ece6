"""TRACE on the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from daceml.errors import ConfigurationError

TraceFile = Annotated[
    Path,
    typer.Argument(
        metavar="TRACE",
        help="torch.profiler trace (export_chrome_trace), .json or .json.gz",
    ),
]


def refuse_model(trace: Path, command: str) -> None:
    """Refuse a model where a command reads a trace.

    Raises:
        ConfigurationError: the argument names a model; the fix names the command for models.
    """
    if not trace.exists() and is_model(str(trace)):
        raise ConfigurationError(
            f"{trace} is a model",
            why=f"`daceml trace {command}` reads a trace of torch.profiler",
            fix=f"run `daceml {command} {trace}` for the model, or give a trace",
        )


def is_model(text: str) -> bool:
    """Return whether an argument is a model: `path.py:Name`, `package.module:Name` or a `.onnx` file."""
    return text.endswith(".onnx") or ":" in Path(text).name
