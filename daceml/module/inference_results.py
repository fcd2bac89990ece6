"""Programs in inference mode: they run outside it, and their results are tensors of it."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree


@contextmanager
def outside_inference_mode() -> Generator[None]:
    """Leave inference mode, if it is on; gradients stay off."""
    if not torch.is_inference_mode_enabled():
        yield
        return
    with torch.inference_mode(mode=False), torch.no_grad():  # the former alone would turn gradients on
        yield


def inference_tensors(result: Any, inputs: Sequence[torch.Tensor], module: nn.Module) -> Any:
    """Fresh tensors among results as tensors of inference mode, on the same memory.

    A program runs outside that mode, since what it keeps from call to call has to be of use there. What
    shares memory with inputs or with the module stays as it is.
    """
    known = (*inputs, *module.parameters(), *module.buffers())
    shared = {tensor.untyped_storage().data_ptr() for tensor in known}
    made: dict[int, torch.Tensor] = {}

    def converted(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.is_inference() or type(tensor) is not torch.Tensor or tensor.layout is not torch.strided:
            return tensor
        storage = tensor.untyped_storage()
        if storage.data_ptr() in shared:
            return tensor
        if id(tensor) not in made:
            empty = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
            made[id(tensor)] = empty.set_(storage, tensor.storage_offset(), tensor.shape, tensor.stride())
        return made[id(tensor)]

    with torch.inference_mode():
        return pytree.tree_map_only(torch.Tensor, converted, result)
