"""The model as PyTorch runs it, to be timed beside its programs."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _pytree as pytree

if TYPE_CHECKING:
    from daceml.tuning.model_call import Subject


class EagerRun:
    """Calls of a copy of the module: what they change of it the module does not see.

    In training a call is a forward and a backward pass, with gradients of the parameters and inputs that
    require one.

    Raises:
        Exception: the module cannot be copied.
    """

    def __init__(self, subject: Subject) -> None:
        self.module, self.training = copy.deepcopy(subject.module), subject.training
        self.args, self.kwargs = pytree.tree_map(_own, (subject.args, subject.kwargs))
        leaves = (*self.module.parameters(), *pytree.tree_leaves((self.args, self.kwargs)))
        self.wanted = [x for x in leaves if isinstance(x, torch.Tensor) and x.requires_grad]

    def __call__(self) -> object:
        with torch.set_grad_enabled(self.training):
            results: Any = self.module(*self.args, **self.kwargs)
            if not self.training:
                return results
            flowing = [
                x for x in pytree.tree_leaves(results) if isinstance(x, torch.Tensor) and x.requires_grad
            ]
            ones = [torch.ones_like(x) for x in flowing]
            return torch.autograd.grad(flowing, self.wanted, ones, allow_unused=True)

    def reset(self) -> None:
        """What calls have changed of the copy stays: statistics, not how long it takes."""


def _own(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    return value.detach().clone().requires_grad_(value.requires_grad)
