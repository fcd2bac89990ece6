"""A cut: why a forward is not one program, and which errors lead to one."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from daceml.errors import (
    CallError,
    DacemlError,
    ExportError,
    GradientError,
    InvalidNodeError,
    MemoryBudgetError,
    NoImplementationError,
    ShapeError,
    UnknownOperatorError,
    UnsupportedProgramError,
    first_line,
)
from daceml.frontend.capture.exportable import RunsEagerlyError
from daceml.frontend.capture.provenance import source_of_traceback

# What a program cannot express. Other errors of daceml are faults of the call, the options or the machine.
_REFUSALS = (
    ExportError,
    NoImplementationError,
    UnknownOperatorError,
    InvalidNodeError,
    ShapeError,
    UnsupportedProgramError,
    GradientError,
)


@dataclass(frozen=True, kw_only=True)
class Cut:
    """Why a part of a model runs eagerly.

    Attributes:
        what: one clause.
        where: the user's line, or the node; empty where there is none.
        why: the cause; several lines where several things were tried.
        fix: how to remove the cut.
        internal: whether daceml itself failed.
        untraceable: whether Dynamo would get it wrong.
    """

    what: str
    where: str = ""
    why: str = ""
    fix: str = ""
    internal: bool = False
    untraceable: bool = False

    def __str__(self) -> str:
        place = f" ({self.where.splitlines()[0]})" if self.where else ""
        return f"{self.what}{place}"


def is_refusal(error: Exception) -> bool:
    """Whether an error of a compilation leads to a cut, and not to the user."""
    if isinstance(error, MemoryBudgetError):
        return False  # eager would not keep the budget either
    if isinstance(error, OSError | MemoryError | torch.OutOfMemoryError):
        return False  # the machine's, and perhaps gone at the next call
    return isinstance(error, (RunsEagerlyError, *_REFUSALS)) or not isinstance(error, DacemlError)


def cut_of(error: Exception) -> Cut:
    """The cut that an error of a compilation leads to."""
    if isinstance(error, RunsEagerlyError):
        advice = (
            "call the module once before: it fills a cache, and is one program at the next call"
            if error.fills
            else "keep such state in buffers, and side effects outside forward"
        )
        return Cut(what=str(error), fix=advice, untraceable=error.untraceable)
    if isinstance(error, (CallError, *_REFUSALS)):
        return Cut(what=error.what, where=error.where, why=error.why, fix=error.fix)
    return Cut(
        what=f"{type(error).__name__}: {first_line(error)}",
        where=source_of_traceback(error.__traceback__),
        why="daceml failed while it compiled the module, which is its fault if eager PyTorch runs the call",
        fix="report it, with the model and DACEML_LOG=debug",
        internal=True,
    )
