"""Which tensors of a call require gradients."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
from torch import nn

from daceml.compiler.guards import Modes
from daceml.compiler.module_request import ModuleRequest
from daceml.frontend.capture.arguments import Arguments
from daceml.frontend.capture.exportable import RunsEagerlyError
from daceml.frontend.capture.module_attributes import held_values
from daceml.runtime.records.gradients import Wanted


def gradients_wanted(request: ModuleRequest, arguments: Arguments, modes: Modes) -> bool:
    """Whether a call asks for a backward pass."""
    if not (modes.grad_enabled and request.backward):
        return False
    return any(t.requires_grad for t in (*arguments.tensors, *_tensors(request.module)))


def wanted_gradients(
    request: ModuleRequest, arguments: Arguments, modes: Modes, state: Mapping[str, torch.Tensor]
) -> Wanted | None:
    """What requires a gradient in this call; None where nothing does.

    Raises:
        RunsEagerlyError: two tensors of the module have one memory, and one of them a gradient of its own.
    """
    if not gradients_wanted(request, arguments, modes):
        return None
    _refuse_shared(state)
    inputs = tuple(x.requires_grad for x in arguments.tensors)
    unique = {id(tensor): key for key, tensor in reversed(list(state.items())) if tensor.requires_grad}
    keys = tuple(key for key in state if key in unique.values())
    return Wanted(inputs=inputs, state=keys) if any(inputs) or keys else None


def requirements(request: ModuleRequest, modes: Modes) -> tuple[tuple[torch.Tensor, bool], ...]:
    """The module's tensors and whether they require gradients, where that decides what is compiled."""
    if not (modes.grad_enabled and request.backward):
        return ()
    tensors = {id(t): t for t in _tensors(request.module)}
    return tuple((t, t.requires_grad) for t in tensors.values())


def _tensors(module: nn.Module) -> Iterator[torch.Tensor]:
    """Parameters, buffers, and what plain attributes hold."""
    yield from module.parameters()
    yield from module.buffers()
    yield from (value for _, value in held_values(module) if isinstance(value, torch.Tensor))


def _refuse_shared(state: Mapping[str, torch.Tensor]) -> None:
    """A program knows tensors by their memory, autograd as objects."""
    first: dict[tuple[object, ...], str] = {}
    for key, tensor in state.items():
        if tensor.numel() == 0:
            continue
        kept = first.setdefault((tensor.data_ptr(), tensor.shape, tensor.stride()), key)
        if state[kept] is not tensor and (tensor.requires_grad or state[kept].requires_grad):
            raise RunsEagerlyError(
                f"{kept} and {key} are two tensors with one memory, and gradients of their own", lasting=False
            )
