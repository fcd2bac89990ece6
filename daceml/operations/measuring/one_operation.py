"""The time of one operation on one device: operands, chains, slopes, and the record they make."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from daceml.devices.measured import BEYOND_CACHE
from daceml.errors import MeasurementError
from daceml.garbage_collection import without_collection
from daceml.operations.database.records import Direction, Duration, Mode
from daceml.operations.measuring.calls import Call
from daceml.operations.measuring.chains import Chain, backward_chain, forward_chain
from daceml.operations.measuring.operands import check_room
from daceml.operations.measuring.processor import last_cache_bytes
from daceml.operations.measuring.slopes import LENGTHS, ROUNDS, Slopes, slopes
from daceml.operations.measuring.stopwatches import (
    CudaEvents,
    CudaGraph,
    Stopwatch,
    WallClock,
    Work,
    nothing,
)

_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
_CACHE_BYTES = 64 << 20  # where the system does not say: larger than most
_COLD_COPIES = 64  # each has operands of its own
_BACKWARD_BYTES = 256 << 20  # gradients of all copies of a chain are there at its end


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How operations are measured.

    Attributes:
        mode: "eager" as calls come, "graph" in a captured CUDA graph, "cold" with no operand in a cache.
        device: "cpu", or "cuda" with an index.
        rounds: slopes that the median is of.
        seed: of the operands' values.
    """

    mode: Mode = "eager"
    device: str = "cpu"
    rounds: int = ROUNDS
    seed: int = 0

    def __post_init__(self) -> None:
        if self.mode == "graph" and not self.device.startswith("cuda"):
            raise MeasurementError(
                f"operations on {self.device} cannot be measured in a graph",
                why="CUDA captures work into graphs; a processor does not",
                fix='take the mode "eager" or "cold"',
            )


def measure(
    call: Call,
    settings: Settings | None = None,
    *,
    direction: Direction = "forward",
    stopwatch: Stopwatch | None = None,
    spent: Callable[[], bool] = lambda: False,
) -> Duration:
    """How long one operation takes.

    Args:
        stopwatch: times chains; that of the device and the mode where none is given.
        spent: asked between rounds; True ends a measurement that has three.
    Raises:
        MeasurementError: its shapes follow from data, it fails, it fills the memory, or noise hides it.
    """
    settings = settings or Settings()
    # a collection of garbage would fall into one chain and not into the others
    with torch.random.fork_rng(devices=[]), torch.no_grad(), without_collection():
        try:
            found = _slopes(call, settings, direction, stopwatch or stopwatch_of(settings), spent)
        except (RuntimeError, TypeError, ValueError, NotImplementedError, IndexError) as error:
            raise MeasurementError(
                f"{call.operator} fails",
                where=_shapes(call),
                why=f"{type(error).__name__}: {str(error).strip().splitlines()[0]}",
                fix="correct its sizes and attributes",
            ) from error
        except MeasurementError as error:
            error.where = error.where or _shapes(call)
            raise
    return found.duration(settings.mode)


def stopwatch_of(settings: Settings, cuda: Any = None) -> Stopwatch:
    """What times work on a device.

    Args:
        cuda: the module `torch.cuda`, or what stands in for it.
    """
    if not settings.device.startswith("cuda"):
        return WallClock()
    cuda = cuda or torch.cuda
    events = CudaEvents(cuda=cuda, stream=cuda.Stream())
    return CudaGraph(events=events) if settings.mode == "graph" else events


def _slopes(
    call: Call, settings: Settings, direction: Direction, stopwatch: Stopwatch, spent: Callable[[], bool]
) -> Slopes:
    held = max(1, call.bytes_held)
    before: Work = nothing
    sets, most = 1, 4096
    buffers: list[int] | None = None
    if settings.mode == "cold":
        cache = cache_bytes(settings.device)
        before, sets, most = scrubbing(BEYOND_CACHE * cache, settings.device), _COLD_COPIES, _COLD_COPIES
        # large operands push each other out
        sets = max(LENGTHS, min(sets, BEYOND_CACHE * cache // held + 1))
        buffers = [sets] * len(call.tensors)
    if direction == "backward":
        if settings.mode == "cold":
            raise MeasurementError(
                "a backward pass is measured warm only",
                why="it reads what the forward pass has just kept",
                fix='take the mode "eager" or "graph"',
            )
        most = max(LENGTHS, min(256, _BACKWARD_BYTES // held))
    check_room(held * (sets if direction == "forward" else 2 * most), bytes_free(settings.device))
    made: Chain
    if direction == "forward":
        made = forward_chain(
            call, stopwatch, device=settings.device, buffers=buffers, before=before, seed=settings.seed
        )
    else:
        made = backward_chain(call, stopwatch, most=most, device=settings.device, seed=settings.seed)
    return slopes(made.timed, rounds=settings.rounds, most=most, spent=spent)


def cache_bytes(device: str) -> int:
    """The last cache before memory."""
    if device.startswith("cuda"):
        return int(torch.cuda.get_device_properties(device).L2_cache_size)
    return last_cache_bytes(_CACHES) or _CACHE_BYTES


def bytes_free(device: str) -> int:
    """Memory of the device that nobody holds."""
    if device.startswith("cuda"):
        return int(torch.cuda.mem_get_info(device)[0])
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def scrubbing(size: int, device: str) -> Work:
    """What writes so many bytes, and leaves nothing else in the caches."""
    room = torch.empty(size, dtype=torch.uint8, device=device)
    return lambda: room.add_(1)


def _shapes(call: Call) -> str:
    return f"{call.operator}({', '.join(f'{one.dtype}{list(one.shape)}' for one in call.tensors)})"
