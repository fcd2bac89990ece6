"""Inputs from the command line with which a model fails: the layer, its line, and what was given."""

from __future__ import annotations

import logging
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from daceml.errors import ModelReferenceError

if TYPE_CHECKING:
    import torch
    from torch import nn

    from daceml.cli.inputs import ModelInputs
    from daceml.module.onnx_model import ONNXModel

_NOISY = "torch._subclasses.fake_tensor"  # logs tracebacks of operations that a trace then reports itself
_PER_LAYER = 200  # characters of its description


@contextmanager
def blamed_on_inputs(model: nn.Module | ONNXModel, call: ModelInputs) -> Generator[None]:
    """Report what fails in the block as wrong inputs, if a plain call of the module fails with them, too.

    Raises:
        ModelReferenceError: with the layer that fails, its line in the user's code, and the inputs.
        Exception: whatever the block raises, where a plain call succeeds.
    """
    from torch import nn

    noisy = logging.getLogger(_NOISY)
    level = noisy.level
    noisy.setLevel(logging.CRITICAL)
    try:
        yield
    except Exception as error:
        refusal = _refusal(model, call.args, call.kwargs) if isinstance(model, nn.Module) else None
        if refusal is None:
            raise
        raise refusal from error
    finally:
        noisy.setLevel(level)


def _refusal(model: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> ModelReferenceError | None:
    """The error of a plain call; None where there is none, or where it says nothing of the inputs."""
    import torch

    from daceml.frontend.capture.arguments import Arguments
    from daceml.frontend.capture.forward_errors import first_lines, raised_by_forward
    from daceml.frontend.capture.provenance import source_of_traceback
    from daceml.module.module import eager_module

    module = eager_module(model)
    entered: list[tuple[str, nn.Module, tuple[Any, ...]]] = []
    names = {id(part): name for name, part in module.named_modules()}

    def enter(part: nn.Module, given: tuple[Any, ...]) -> None:
        entered.append((names[id(part)], part, given))

    def leave(*_: object) -> None:
        entered.pop()

    hooks = [part.register_forward_pre_hook(enter) for part in module.modules()]
    hooks += [part.register_forward_hook(leave) for part in module.modules()]
    try:
        with torch.no_grad():
            module(*args, **kwargs)
    except (RuntimeError, ValueError, TypeError, IndexError, AssertionError, KeyError) as error:
        if raised_by_forward(error):
            return None  # the model's own exception says what it expects
        source = source_of_traceback(error.__traceback__)
        described = Arguments(tuple(args), dict(kwargs)).describe(module.forward)
        reason = first_lines(str(error))
        why = f"{type(error).__name__}: {reason}" if reason else type(error).__name__
        layer, of_layer = "", ""
        if len(entered) > 1:
            name, part, given = entered[-1]
            layer = f"layer {name}" if name else ""
            shapes = ", ".join(_shape(one) for one in given if isinstance(one, torch.Tensor))
            of_layer = f"\n{name} is {str(part)[:_PER_LAYER]}" + (
                f" and was given {shapes}" if shapes else ""
            )
        return ModelReferenceError(
            f"{type(module).__name__} fails with the given inputs",
            where=", ".join(filter(None, (layer, source))),
            why=f"{why}{of_layer}\ncalled with {described}",
            fix="give shapes and types that a plain call of the model takes: -i SHAPE[:TYPE] for each input",
        )
    finally:
        for hook in hooks:
            hook.remove()
    return None


def _shape(tensor: torch.Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} {tuple(tensor.shape)}"
