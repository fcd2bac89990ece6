"""`--search`: the standard recipe is varied and measured."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from daceml.errors import ModelReferenceError

if TYPE_CHECKING:
    from torch import nn

    from daceml.module.onnx_model import ONNXModel


def searching(model: nn.Module | ONNXModel) -> nn.Module:
    """The model compiled with a search, without a backward pass.

    Raises:
        ModelReferenceError: it is an ONNX file.
    """
    from daceml.module.module import DaceModule, compile_module
    from daceml.module.onnx_model import ONNXModel

    if isinstance(model, ONNXModel):
        raise ModelReferenceError(
            f"{model.name} is compiled without --search",
            why="a search runs a module on the values of a call, and an ONNX file is compiled before one",
            fix="leave it out",
        )
    given: dict[str, Any] = {}
    if isinstance(model, DaceModule):
        given = dict(model.session.options)
    return compile_module(model, **{**given, "backward": False, "auto_optimize": "search"})
