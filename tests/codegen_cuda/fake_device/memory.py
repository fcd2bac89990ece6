"""Memory of the fake device as tensors of the processor: it is memory of this process."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

import torch


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a tensor lies and what form it has; the tensor itself may be gone when its memory is used.

    Attributes:
        address: of its storage.
        storage_bytes: of all of that.
        offset: of the first element, in elements.
    """

    address: int
    storage_bytes: int
    dtype: torch.dtype
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    def tensor(self) -> torch.Tensor:
        """The tensor on the processor; its memory can be used while work of a stream runs."""
        if self.storage_bytes == 0:
            return torch.empty(self.shape, dtype=self.dtype)
        buffer = (ctypes.c_uint8 * self.storage_bytes).from_address(self.address)
        storage = torch.frombuffer(buffer, dtype=torch.uint8).untyped_storage()
        return torch.empty(0, dtype=self.dtype).set_(storage, self.offset, self.shape, self.strides)


def place_of(tensor: torch.Tensor) -> Place:
    """Where a tensor lies."""
    storage = tensor.untyped_storage()
    return Place(
        address=storage.data_ptr(),
        storage_bytes=storage.nbytes(),
        dtype=tensor.dtype,
        offset=tensor.storage_offset(),
        shape=tuple(tensor.shape),
        strides=tuple(tensor.stride()),
    )
