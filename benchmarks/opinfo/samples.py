"""Calls of an operator: a module, tensors for its forward, and the same in float64."""

from __future__ import annotations

import copy
import itertools
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils import _pytree as pytree

# of these, the second sample is chosen
_MOST_SAMPLES = 40
_TYPES = (
    torch.float32, torch.int64, torch.int32, torch.uint8, torch.bool, torch.complex64, torch.float16,
    torch.bfloat16, torch.float64,
)  # fmt: skip
_WIDER = {torch.float32: torch.float64, torch.complex64: torch.complex128}


@dataclass(frozen=True)
class _Place:
    """Where an argument of forward stands among the arguments of an operator."""

    number: int


class OperatorModule(nn.Module):
    """Calls a function; what is a `_Place` among its arguments is a tensor of forward."""

    def __init__(self, function: Callable[..., Any], arguments: tuple[Any, tuple[Any, ...], dict[str, Any]]):
        super().__init__()
        self.function = function
        self.arguments = arguments

    def forward(self, *tensors: torch.Tensor) -> Any:
        first, args, kwargs = _filled(self.arguments, tensors)
        return self.function(first, *args, **kwargs)


class InPlaceModule(OperatorModule):
    """Changes a computed value, and returns it."""

    def forward(self, *tensors: torch.Tensor) -> Any:
        first, args, kwargs = _filled(self.arguments, tensors)
        computed = first.clone()
        self.function(computed, *args, **kwargs)
        return computed


def _filled(value: Any, tensors: Sequence[torch.Tensor]) -> Any:
    if isinstance(value, _Place):
        return tensors[value.number]
    if type(value) is list:
        return [_filled(entry, tensors) for entry in value]
    if type(value) is tuple:
        return tuple([_filled(entry, tensors) for entry in value])
    if type(value) is dict:
        return {key: _filled(entry, tensors) for key, entry in value.items()}
    return value


@dataclass(frozen=True, kw_only=True)
class Sample:
    """One call of an operator.

    Attributes:
        arguments: its first argument, further ones, and those by name; `_Place` stands for a tensor.
        tensors: never passed themselves, see `fresh`.
    """

    arguments: tuple[Any, tuple[Any, ...], dict[str, Any]]
    tensors: tuple[torch.Tensor, ...]

    @classmethod
    def of(cls, sample: Any) -> Sample:
        """A sample of torch's database."""
        tensors: list[torch.Tensor] = []

        def place(leaf: Any) -> Any:
            if not isinstance(leaf, torch.Tensor):
                return leaf
            tensors.append(leaf)
            return _Place(len(tensors) - 1)

        given = (sample.input, tuple(sample.args), dict(sample.kwargs))
        arguments = pytree.tree_map(place, given)
        return cls(arguments=arguments, tensors=tuple(tensors))

    @property
    def odd(self) -> bool:
        """Whether a tensor is empty, has no dimensions, or lies in memory in an unusual way."""
        return any(
            t.layout is not torch.strided or not t.numel() or not t.ndim or not t.is_contiguous()
            for t in self.tensors
        )

    def module(self, function: Callable[..., Any], kind: type[OperatorModule] = OperatorModule) -> nn.Module:
        return kind(function, self.arguments)

    def fresh(self, *, gradients: bool) -> list[torch.Tensor]:
        """Equal tensors, with memory in common where these have it.

        Args:
            gradients: those that require a gradient in the database do so.
        """
        copies = _copies(self.tensors)
        for old, new in zip(self.tensors, copies, strict=True):
            if gradients and old.requires_grad:
                new.requires_grad_()
        return copies

    def in_float64(self) -> Sample:
        """The same numbers in float64, constants and types among the arguments, too."""

        def wider(leaf: Any) -> Any:
            return _WIDER.get(leaf, leaf) if isinstance(leaf, torch.dtype) else leaf

        wide = [t.to(_WIDER[t.dtype]) if t.dtype in _WIDER else t for t in _copies(self.tensors)]
        for old, new in zip(self.tensors, wide, strict=True):
            new.requires_grad_(old.requires_grad)
        return Sample(arguments=pytree.tree_map(wider, self.arguments), tensors=tuple(wide))

    def text(self) -> str:
        """Shapes, and constants, shortly."""

        def short(leaf: Any) -> str:
            if isinstance(leaf, _Place):
                t = self.tensors[leaf.number]
                return f"{str(t.dtype).removeprefix('torch.')}{list(t.shape)}"
            return repr(leaf)[:40]

        first, args, kwargs = pytree.tree_map(short, self.arguments)
        return ", ".join([str(first), *map(str, args), *(f"{k}={v}" for k, v in kwargs.items())])[:200]


def _copies(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    memo: dict[int, Any] = {}
    return [
        copy.deepcopy(t.detach(), memo)
        if t.layout is torch.strided and not t.is_nested
        else t.detach().clone()
        for t in tensors
    ]


def dtype_of(operator: Any) -> torch.dtype:
    """float32, or an integer type where an operator has no float32."""
    supported = operator.supported_dtypes("cpu")
    return next(dtype for dtype in _TYPES if dtype in supported)


def has_gradient(operator: Any, dtype: torch.dtype) -> bool:
    return bool(operator.supports_autograd) and dtype in operator.supported_backward_dtypes("cpu")


def samples_of(operator: Any, *, count: int, seed: int) -> list[Sample]:
    """The first sample with tensors, an odd one where there is one, and others."""
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002 - the database draws from it
    dtype = dtype_of(operator)
    given = operator.sample_inputs("cpu", dtype, requires_grad=has_gradient(operator, dtype))
    found = [Sample.of(sample) for sample in itertools.islice(given, _MOST_SAMPLES)]
    if not found:
        return []
    first = next((sample for sample in found if sample.tensors), found[0])
    others = [sample for sample in found if sample is not first and sample.text() != first.text()]
    others.sort(key=lambda sample: not sample.odd)
    rest = others[:1] + others[:0:-1]  # an odd one, then from the end: the rarest arguments stand there
    return [first, *rest][:count]
