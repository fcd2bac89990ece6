"""A module as torch.export wants it: without the hooks that nn.Module runs around the compiled forward
anyway."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from torch import nn

_HOOKS = (
    "_forward_hooks",
    "_forward_pre_hooks",
    "_backward_hooks",
    "_backward_pre_hooks",
    "_forward_hooks_with_kwargs",
    "_forward_pre_hooks_with_kwargs",
    "_forward_hooks_always_called",
)


@contextmanager
def exportable(module: nn.Module) -> Generator[nn.Module]:
    """A view of `module` for the time of an export.

    The view shares everything with the module but the outermost hooks, which run at every call. Plain tensors
    in the place of parameters (`torch.func.functional_call` puts them there) are wrapped meanwhile, since
    torch.export wants parameters.
    """
    view = object.__new__(type(module))
    view.__dict__ = {**module.__dict__, **{name: OrderedDict() for name in _HOOKS if name in module.__dict__}}
    owned: list[dict[str, Any]] = [child.__dict__["_parameters"] for child in module.modules()]
    plain = [
        (parameters, name, tensor)
        for parameters in owned
        for name, tensor in parameters.items()
        if tensor is not None and not isinstance(tensor, nn.Parameter)
    ]
    wrapped = {id(t): nn.Parameter(t.detach(), requires_grad=False) for _, _, t in plain}
    try:
        for parameters, name, tensor in plain:
            parameters[name] = wrapped[id(tensor)]
        yield view
    finally:
        for parameters, name, tensor in plain:
            parameters[name] = tensor
