"""What an exception during a trace means: forward's own, or a refusal of torch's.

Forward runs as Python while it is traced. A line of the user's that raises would have raised in an eager
call, too, and its exception is what the user's own handlers wait for. torch refuses what eager PyTorch
refuses, and what it cannot trace; the two cannot be told apart, so that error is daceml's, and of torch's
type as well.
"""

from __future__ import annotations

import re
import sysconfig
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from daceml import errors
from daceml.config import PACKAGE_FOLDER
from daceml.errors import ExportError
from daceml.frontend.capture.provenance import source_of_trace, source_of_traceback

if TYPE_CHECKING:
    from torch import nn

    from daceml.frontend.capture.arguments import Arguments

_REASON_LINES = 6
_TORCH_EXPORT = ("torch._dynamo", "torch.fx", "torch._export", "torch.export")
_EXPORTED = "torch.export.export(..., strict=False)"

_KINDS: dict[type[Exception], type[ExportError]] = {
    RuntimeError: errors.ExportRuntimeError,
    TypeError: errors.ExportTypeError,
    ValueError: errors.ExportValueError,
    IndexError: errors.ExportIndexError,
    KeyError: errors.ExportKeyError,
    AttributeError: errors.ExportAttributeError,
}


def raised_by_forward(error: BaseException) -> bool:
    """Whether an exception of a trace comes from a line outside torch and daceml.

    The standard library raises for its callers, and so does SymPy, which only torch calls here.
    """
    frames: list[str] = []
    traceback: TracebackType | None = error.__traceback__
    while traceback is not None:
        frames.append(traceback.tb_frame.f_code.co_filename)
        traceback = traceback.tb_next
    for path in reversed(frames):
        if not _raises_for_callers(path):
            return not _is_framework(path)
    return False


def _raises_for_callers(path: str) -> bool:
    library = sysconfig.get_paths()["stdlib"]
    if path.startswith(library):
        return "site-packages" not in path
    return path.startswith("<frozen")


def _is_framework(path: str) -> bool:
    import sympy
    import torch

    folders = (Path(torch.__file__).parent, Path(sympy.__file__).parent, PACKAGE_FOLDER)
    # torch's own generated code has such names; a user's may come from an interpreter's prompt
    return path.startswith(("<eval_with_key>", *(f"{folder}/" for folder in folders)))


def note_tracing(module: nn.Module, error: BaseException) -> None:
    """Say in an exception of forward's that it was raised in a trace."""
    note = (
        f"raised by the forward of {type(module).__name__} while daceml traced it. If an eager call does not "
        f"raise it,\nchange forward until {_EXPORTED} takes it, or compile a submodule."
    )
    if note not in getattr(error, "__notes__", ()):
        error.add_note(note)


def refusal_of_torch(module: nn.Module, arguments: Arguments, error: Exception) -> ExportError:
    """The error for what torch raised in a trace; it is of torch's type, too, where that is a builtin one."""
    text = str(error)
    what = f"torch.export cannot take {type(module).__name__}"
    if "data-dependent" in text or "DataDependent" in type(error).__name__:
        what = f"the forward of {type(module).__name__} asks for the value of a tensor"
        fix = (
            "replace the branch on tensor values by torch.where, and numbers that are read from tensors\n"
            "(.item(), int()) by the tensors; or compile the part of the model without it"
        )
    elif "dynamic_shapes" in text or "Constraints violated" in text:
        fix = "leave the named dimensions static, or give them the range that torch asks for"
    elif "which is not a known type" in text:
        fix = (
            "return tensors and plain values, in tuples, lists and dicts, or torch.export.register_dataclass"
        )
    elif not type(error).__module__.startswith(_TORCH_EXPORT):
        what = f"torch refuses an operation in the forward of {type(module).__name__}"
        fix = (
            "call the module without daceml: where that fails too, mend the arguments or forward;\n"
            f"else change forward until {_EXPORTED} takes it, or compile a submodule"
        )
    else:
        fix = f"change forward until {_EXPORTED} takes it, or compile a submodule"
    given = arguments.describe(module.forward)
    return _KINDS.get(type(error), ExportError)(
        what,
        where=source_of_traceback(error.__traceback__) or source_of_trace(text),
        why=f"{type(error).__name__}: {first_lines(text)}" + (f"\ncalled with {given}" if given else ""),
        fix=fix,
    )


def first_lines(text: str) -> str:
    """The reason without colours, code frames and advice for torch's own developers."""
    kept: list[str] = []
    lines = iter(re.sub(r"\x1b\[[0-9;]*m", "", text).splitlines())
    for line in lines:
        if re.match(r'\s*File "', line):
            next(lines, None)
        elif re.match(
            r"\s*(Traceback|from user code|The above exception|Set TORCH|For more information)", line
        ):
            break
        elif line.strip():
            kept.append(line.rstrip())
    return "\n".join(kept[:_REASON_LINES])
