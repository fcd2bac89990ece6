"""The same model and call with another type of floating-point numbers."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from daceml.errors import ExplorationError

TORCH_TYPES = {"bf16": "bfloat16", "bfloat16": "bfloat16", "fp16": "float16", "float16": "float16"}
"""What types are called -> name in torch."""


def in_precision(
    module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], precision: str
) -> tuple[nn.Module, tuple[Any, ...], dict[str, Any]]:
    """A copy of a model whose parameters, buffers and inputs are of that type, where they are floating.

    Args:
        precision: a floating type of torch; "" changes nothing.
    Raises:
        ExplorationError: there is no such type.
    """
    if not precision:
        return module, args, kwargs
    dtype = getattr(torch, precision, None)
    if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
        raise ExplorationError(
            f"{precision!r} is no precision", fix="name a floating type of torch: bfloat16, float16"
        )

    def cast(value: Any) -> Any:
        floating = isinstance(value, torch.Tensor) and value.is_floating_point()
        return value.detach().to(dtype).requires_grad_(value.requires_grad) if floating else value

    args, kwargs = pytree.tree_map(cast, (args, kwargs))
    return copy.deepcopy(module).to(dtype), args, kwargs
