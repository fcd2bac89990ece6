"""Gradients that a forward pass defines itself, which an export does not see.

The user's `torch.autograd.Function` has a backward of its own, which is traced, too (`custom_gradients.py`).
Hooks of tensors and of submodules change gradients on their way, and a forward pass may ask for gradients
itself: torch keeps such a module. An exported program has the operators of the forward pass alone.
"""

from __future__ import annotations

import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from daceml.frontend.capture.exportable import RunsEagerlyError
from daceml.frontend.capture.gradients.custom_gradients import traced_function

_TRACERS = ("torch._higher_order_ops.", "torch._library.", "torch._export.", "torch._subclasses.")
"""Where torch has functions whose backward says the same as their forward, or which no graph shows."""

_REFUSED: dict[Any, str] = {
    torch.Tensor.register_hook: "register_hook of a tensor",
    torch.Tensor.register_post_accumulate_grad_hook: "register_post_accumulate_grad_hook of a tensor",
    torch.Tensor.retain_grad: "retain_grad of a tensor",
    torch.Tensor.backward: "backward",
    torch.autograd.grad: "torch.autograd.grad",
}

_SET: Any = torch.Tensor.requires_grad.__set__  # pyright: ignore[reportAttributeAccessIssue]
_SWITCHES: dict[Any, str] = {
    torch.Tensor.requires_grad_: "requires_grad_",
    _SET: "requires_grad_",
    torch.Tensor.detach_: "detach_",
}
"""What changes whether a tensor requires a gradient: allowed for what forward has made itself."""


def refuse_gradient_hooks(module: nn.Module) -> None:
    """Refuse hooks for gradients inside a module; its own run at every call.

    Raises:
        RunsEagerlyError: a submodule has some.
    """
    for path, child in module.named_modules():
        hooks = (*child._backward_hooks, *child._backward_pre_hooks)  # pyright: ignore[reportPrivateUsage]
        if child is not module and hooks:
            raise RunsEagerlyError(f"submodule {path} has hooks for its gradients", lasting=False)


@contextmanager
def without_own_gradients(given: Sequence[torch.Tensor]) -> Generator[None]:
    """Trace a forward pass within the block, for a backward pass that is derived from the trace.

    The block is one thread's; what others do meanwhile is left alone.

    Args:
        given: the tensors of the caller and of the module, as they are traced.
    Raises:
        RunsEagerlyError: forward has gradients of its own; raised inside the block where it meets them.
    """
    thread = threading.get_ident()
    # what `Function.apply` calls: forward may hold that method itself, as of `relu = MyReLU.apply`
    function: Any = torch.autograd.function._SingleLevelFunction  # pyright: ignore[reportPrivateUsage]
    inference = torch.inference_mode
    enter = inference.__enter__

    def checked(cls: Any, *args: Any, **kwargs: Any) -> Any:
        if threading.get_ident() != thread or f"{cls.__module__}.".startswith(_TRACERS):
            return super(function, cls).apply(*args, **kwargs)
        if f"{cls.__module__}.".startswith("torch."):
            raise RunsEagerlyError(f"forward calls {cls.__qualname__}, whose backward is its own")
        return traced_function(cls, args, kwargs)

    def entered(self: torch.inference_mode) -> None:
        if threading.get_ident() == thread and self.mode:
            raise RunsEagerlyError("forward goes into inference mode, with gradients enabled around it")
        enter(self)

    try:
        function.apply = classmethod(checked)
        inference.__enter__ = entered
        with _Refusals(given):
            yield
    finally:
        del function.apply
        inference.__enter__ = enter


class _Refusals(TorchFunctionMode):
    """Refuses what forward may not ask of its tensors, or of those that the caller and the module have."""

    def __init__(self, given: Sequence[torch.Tensor]) -> None:
        super().__init__()
        self._given = frozenset(map(id, given))

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func in _REFUSED:
            raise RunsEagerlyError(f"forward calls {_REFUSED[func]}")
        if func in _SWITCHES and id(args[0]) in self._given:
            if func == torch.Tensor.detach_ or args[0].requires_grad != _wanted(*args[1:], **(kwargs or {})):
                raise RunsEagerlyError(f"forward calls {_SWITCHES[func]} of a tensor that it has not made")
            return args[0]
        return func(*args, **(kwargs or {}))


def _wanted(requires_grad: bool = True) -> bool:
    return requires_grad
