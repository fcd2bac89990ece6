"""Tensors over the memory of a program's arrays, while a step of the program lasts."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from typing import Any

import torch

# All memory from an address on: a type for each size would be garbage that only a full collection finds
_FROM_HERE = ctypes.c_char * 2**46


def tensor_at(
    address: int, shape: Sequence[int], strides: Sequence[int], dtype: torch.dtype, device: torch.device
) -> torch.Tensor:
    """A tensor that does not own its memory.

    Args:
        address: of dense memory with as many elements as `shape` has.
        strides: in elements.
    """
    elements = math.prod(shape)
    if elements == 0:
        return torch.empty(tuple(shape), dtype=dtype, device=device)
    if device.type == "cpu":
        flat = torch.frombuffer(_FROM_HERE.from_address(address), dtype=dtype, count=elements)
    else:
        flat = torch.as_tensor(_OnDevice(address, elements * dtype.itemsize), device=device).view(dtype)
    return flat.as_strided(tuple(shape), tuple(strides))


class _OnDevice:
    """Bytes on a CUDA device, in the form that array libraries take from each other."""

    def __init__(self, address: int, size_bytes: int) -> None:
        self.__cuda_array_interface__: dict[str, Any] = {
            "data": (address, False),
            "shape": (size_bytes,),
            "strides": None,
            "typestr": "|u1",
            "version": 3,
        }
