"""`torch.autograd.Function` in a trace: its forward and its backward both become part of the exported graph.

The backward is traced right behind the forward, for a cotangent that nobody has yet
(`daceml::cotangent_of`). `daceml::with_gradient` gives the forward's result, and says which tensors are its
gradients. Differentiation puts the true cotangent in the place of the first and removes both.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from daceml.frontend.capture.exportable import RunsEagerlyError


class TracedContext:
    """What a function's `forward` and `backward` share; stands for torch's context in a trace."""

    def __init__(self, needs_input_grad: tuple[bool, ...]) -> None:
        self.needs_input_grad = needs_input_grad
        self.saved_tensors: tuple[torch.Tensor | None, ...] = ()

    def save_for_backward(self, *tensors: torch.Tensor | None) -> None:
        """Keep tensors; in a trace they stay values of the graph."""
        self.saved_tensors = tensors

    def save_for_forward(self, *tensors: torch.Tensor | None) -> None:
        """Forward-mode derivatives are not traced."""

    def set_materialize_grads(self, value: bool) -> None:
        """There is one result, and it has a cotangent."""

    def mark_non_differentiable(self, *tensors: torch.Tensor) -> None:
        """A result without gradient makes the function one without."""
        raise RunsEagerlyError("an autograd.Function marks results as not differentiable")

    def mark_dirty(self, *tensors: torch.Tensor) -> None:
        """Changes in place are left to torch."""
        raise RunsEagerlyError("an autograd.Function changes its operands in place")


@functools.cache
def cotangent_of() -> Any:
    """The operator: the cotangent of its operand."""

    @torch.library.custom_op("daceml::cotangent_of", mutates_args=())
    def cotangent(x: torch.Tensor) -> torch.Tensor:
        return torch.empty_like(x)

    @cotangent.register_fake
    def _(x: torch.Tensor) -> torch.Tensor:
        return torch.empty_like(x)

    return torch.ops.daceml.cotangent_of.default


@functools.cache
def with_gradient() -> Any:
    """The operator: the value of its first operand, with these gradients of the operands behind it."""

    @torch.library.custom_op("daceml::with_gradient", mutates_args=())
    def attach(
        result: torch.Tensor, operands: Sequence[torch.Tensor], gradients: Sequence[torch.Tensor]
    ) -> torch.Tensor:
        return result.clone()

    @attach.register_fake
    def _(
        result: torch.Tensor, operands: Sequence[torch.Tensor], gradients: Sequence[torch.Tensor]
    ) -> torch.Tensor:
        return torch.empty_like(result)

    return torch.ops.daceml.with_gradient.default


Emit = Callable[..., Any]
"""Takes an operator and its arguments; adds the call to the graph."""


def emitter(node: torch.fx.Node) -> Emit:
    """Adds calls where the graph is being changed; they stem from the same line as a node."""

    def emit(target: Any, *args: Any, **kwargs: Any) -> torch.fx.Node:
        made = node.graph.call_function(target, args, kwargs)
        value = target(*torch.fx.map_arg(args, value_of), **kwargs)
        made.meta = dict(node.meta, val=value)
        return made

    return emit


def value_of(operand: Any) -> Any:
    """What a node of an exported graph gives; other operands as they are."""
    return operand.meta["val"] if isinstance(operand, torch.fx.Node) else operand


def traced_function(cls: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What `cls.apply(*args)` gives, in a trace.

    Raises:
        RunsEagerlyError: the function has several results, or gradients of other shapes than its operands.
    """
    name = cls.__qualname__
    if kwargs:
        raise RunsEagerlyError(f"{name}.apply has keyword arguments")
    needs = tuple(isinstance(a, torch.Tensor) and a.is_floating_point() for a in args)
    context = TracedContext(needs)
    if cls.setup_context is not torch.autograd.function._SingleLevelFunction.setup_context:  # pyright: ignore
        result = cls.forward(*args)
        cls.setup_context(context, args, result)
    else:
        result = cls.forward(context, *args)
    if not isinstance(result, torch.Tensor) or not result.is_floating_point():
        raise RunsEagerlyError(f"{name} has not one float tensor as its result")
    if not torch.is_grad_enabled() or not any(needs):
        return result
    if any(result is a for a in args):
        raise RunsEagerlyError(f"{name} gives one of its operands")
    backward = getattr(cls.backward, "__wrapped__", cls.backward)
    found = backward(context, cotangent_of()(result))
    gradients = found if isinstance(found, tuple | list) else (found,)
    operands: list[torch.Tensor] = []
    given: list[torch.Tensor] = []
    for operand, gradient in zip(args, gradients, strict=False):
        if gradient is None or not isinstance(operand, torch.Tensor):
            continue
        if gradient.shape != operand.shape or gradient.dtype != operand.dtype:
            raise RunsEagerlyError(f"{name} gives a gradient of another shape or type than its operand")
        operands.append(operand)
        given.append(gradient)
    return with_gradient()(result, operands, given)
