"""The stream that a call runs on: that of the library whose arrays go in and come out.

Programs, and DLPack's two sides, order their work on torch's current stream. So for the time of a call, the
current stream of the arrays' own library becomes torch's: nothing waits for anything then, and who captures
that library's stream captures the program with it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from daceml.module.arrays.dlpack import CUDA, ROCM

# Package -> the address of its current stream on a device. Libraries that show none are ordered by DLPack.
_CURRENT: dict[str, Callable[[Any, int], int]] = {
    "cupy": lambda cupy, device: cupy.cuda.get_current_stream(device).ptr,
}
# cudaStreamLegacy beside the null stream: two names of what torch calls the default stream
_DEFAULT = (0, 1)


def stream_of(values: Iterable[Any]) -> AbstractContextManager[Any]:
    """A context in which torch's current stream is that of the values' library.

    Args:
        values: arguments of a call. A tensor among them, or no array that lies on a device and whose library
            has a current stream, leaves torch's own stream the current one.
    """
    values = list(values)
    if any(isinstance(value, torch.Tensor) for value in values) or not torch.cuda.is_available():
        return nullcontext()
    for value in values:
        package = type(value).__module__.partition(".")[0]
        if package not in _CURRENT:
            continue
        kind, device = value.__dlpack_device__()
        if kind in (CUDA, ROCM):
            return torch.cuda.stream(_as_torch(_CURRENT[package](sys.modules[package], device), device))
    return nullcontext()


def _as_torch(address: int, device: int) -> torch.cuda.Stream:
    if address in _DEFAULT:
        return torch.cuda.default_stream(device)
    return torch.cuda.ExternalStream(address, device=device)
