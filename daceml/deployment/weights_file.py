"""The weights of an exported model in one file: as they lie in memory, each where vectors can read it.

`DMLWGT01`, the number of weights, then for each where it begins, all of 8 bytes in the processor's order;
then the weights, each at a multiple of 64 bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

_MAGIC = b"DMLWGT01"
_ALIGNED = 64


def write_weights(path: Path, weights: Sequence[torch.Tensor]) -> None:
    """Write them."""
    arrays = [_memory(weight) for weight in weights]
    place = _up(len(_MAGIC) + 8 + 8 * len(arrays))
    places: list[int] = []
    for array in arrays:
        places.append(place)
        place = _up(place + len(array))
    with path.open("wb") as file:
        file.write(_MAGIC + struct.pack(f"={1 + len(arrays)}q", len(arrays), *places))
        for start, array in zip(places, arrays, strict=True):
            file.write(b"\0" * (start - file.tell()))
            file.write(array)
        file.write(b"\0" * (place - file.tell()))


def _memory(weight: torch.Tensor) -> bytes:
    """From its first element to its last, with what lies between."""
    import torch

    weight = weight.detach()
    if weight.numel() == 0:
        return b""
    last = sum((n - 1) * step for n, step in zip(weight.shape, weight.stride(), strict=True))
    flat = weight.as_strided((last + 1,), (1,)).contiguous()
    return flat.view(torch.uint8).numpy().tobytes()


def _up(place: int) -> int:
    return -(-place // _ALIGNED) * _ALIGNED
