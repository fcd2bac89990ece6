"""On which device a call runs, and the autocast regions of devices."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext

import torch

from daceml.errors import CallError

CPU = torch.device("cpu")
DEVICE_TYPES = ("cpu", "cuda")


def has_cuda() -> bool:
    """Whether this torch was built for CUDA."""
    return torch.version.cuda is not None


def device_of(tensors: Iterable[tuple[str, torch.Tensor]]) -> torch.device:
    """The one device on which tensors lie; the CPU where there are none.

    Args:
        tensors: name, for messages, and tensor.
    Raises:
        CallError: they lie on several.
    """
    first: tuple[str, torch.device] | None = None
    for name, tensor in tensors:
        if first is None:
            first = name, tensor.device
        elif tensor.device != first[1]:
            raise CallError(
                f"the tensors of a call lie on {first[1]} and {tensor.device}",
                where=f"{first[0]}, {name}",
                why="a program runs on one device, and copies nothing to it",
                fix=f"move module and inputs to one of them: module.to({str(first[1])!r}), "
                f"tensor.to({str(first[1])!r})",
            )
    return CPU if first is None else first[1]


def autocast_types() -> tuple[torch.dtype | None, ...]:
    """The type of the autocast region that is open for each of `DEVICE_TYPES`; None where there is none."""
    on_cpu = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else None
    if not has_cuda():
        return on_cpu, None
    return on_cpu, torch.get_autocast_dtype("cuda") if torch.is_autocast_enabled("cuda") else None


def autocast_regions(types: tuple[torch.dtype | None, ...]) -> AbstractContextManager[object]:
    """Within the block, autocast regions of these types."""
    if not any(types):
        return nullcontext()
    stack = ExitStack()
    for kind, dtype in zip(DEVICE_TYPES, types, strict=True):
        if dtype is not None:
            stack.enter_context(torch.autocast(kind, dtype))
    return stack


@contextmanager
def without_autocast() -> Generator[None]:
    """Within the block, no autocast region is open."""
    with torch.autocast("cpu", enabled=False):
        if not has_cuda():
            yield
            return
        with torch.autocast("cuda", enabled=False):
            yield
