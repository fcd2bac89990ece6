"""Failures for want of memory, told with the bytes that were asked for and those that there are."""

from __future__ import annotations

import re
import resource

import torch

from daceml.errors import OutOfMemoryError
from daceml.runtime.timing.available_memory import available_bytes

# of the launcher, a deployed library, and torch's allocators for the processor and for CUDA devices
_SAID = re.compile(
    r"there is no memory for|there are no \d+ bytes for|can't allocate memory|out of memory|bad_alloc",
    re.IGNORECASE,
)


def memory_error(why: str, *, what: str, where: str, device: torch.device) -> OutOfMemoryError | None:
    """The error for a failure, if memory is its cause.

    Args:
        why: the message of the launcher, a library or torch.
        what: could not be done.
        device: on which memory was asked for.
    """
    if _SAID.search(why) is None:
        return None
    return OutOfMemoryError(
        what,
        where=where,
        why=f"{why}; {_available(device)}",
        fix="free tensors that are not needed, or call with smaller inputs; memory_budget_bytes limits what "
        "a training step keeps for its backward pass",
    )


def _available(device: torch.device) -> str:
    if device.type == "cuda":
        free, total = torch.cuda.mem_get_info(device)
        return f"{free} of {total} bytes are free on {device}"
    free = available_bytes()
    told = "the free memory is not known" if free is None else f"{free} bytes are free"
    most = resource.getrlimit(resource.RLIMIT_AS)[0]
    limited = f"{told}, and this process may have {most} in all (ulimit -v)"
    return told if most == resource.RLIM_INFINITY else limited
