"""Where a node of an exported graph comes from: the module that made it and the user's line."""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import TYPE_CHECKING

from daceml.config import PACKAGE_FOLDER

if TYPE_CHECKING:
    from types import TracebackType

    import torch

_FRAME = re.compile(r'File "(?P<path>[^"]+)", line (?P<line>\d+)')
_OURS = str(PACKAGE_FOLDER.resolve())


@functools.cache
def _foreign() -> tuple[str, ...]:
    """Folders whose frames are not the user's: torch and the compiler."""
    import torch

    return str(Path(torch.__file__).resolve().parent), _OURS


def is_user_file(path: str) -> bool:
    """Whether a frame lies outside torch and the compiler."""
    return not path.startswith("<") and not path.startswith(_foreign())


def source_of_trace(trace: str) -> str:
    """The deepest frame of the user in a printed stack, such as `model.py:41`; empty where there is none."""
    for frame in reversed(list(_FRAME.finditer(trace))):
        if is_user_file(frame["path"]):
            return f"{Path(frame['path']).name}:{frame['line']}"
    return ""


def source_of_node(node: torch.fx.Node) -> str:
    """The user's line that made a node."""
    return source_of_trace(node.meta.get("stack_trace") or "")


def module_of_node(node: torch.fx.Node) -> str:
    """The path of the module that made a node, such as `layer1.0.conv1`; empty for the module itself."""
    stack = node.meta.get("nn_module_stack")
    if not stack:
        return ""
    path = next(reversed(stack.values()))[0]
    if "_empty_nn_module_stack" in path:
        # what torch writes for nodes that its own passes made
        return ""
    # torch marks the second call of one module with @1
    return re.sub(r"@\d+", "", path)


def source_of_traceback(traceback: TracebackType | None) -> str:
    """The deepest frame of the user that an exception passed through."""
    found = ""
    while traceback is not None:
        path = traceback.tb_frame.f_code.co_filename
        if is_user_file(path):
            found = f"{Path(path).name}:{traceback.tb_lineno}"
        traceback = traceback.tb_next
    return found
