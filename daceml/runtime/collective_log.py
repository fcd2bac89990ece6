"""When collectives that torch's profiler does not see began and ended, for whoever records a run."""

from __future__ import annotations

import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, kw_only=True)
class LoggedCollective:
    """One collective on this rank.

    Attributes:
        name: such as "mpi:all_reduce".
        thread: the operating system's number of the thread that looked after it.
        start_ns, end_ns: since 1970.
        elements: of the tensor; `dtype` is their type, such as "float32".
        group: what the ranks talk through; `size` is their number.
        sequence: number of the collective on this rank, from 0.
    """

    name: str
    thread: int
    start_ns: int
    end_ns: int
    elements: int
    dtype: str
    group: str
    size: int
    sequence: int


_lock = threading.Lock()
_log: list[LoggedCollective] | None = None
_count = 0


def start_collective_log() -> None:
    """Record every such collective from now on; what was recorded before is forgotten."""
    global _log
    with _lock:
        _log = []


def stop_collective_log() -> tuple[LoggedCollective, ...]:
    """Stop, and hand out what has ended."""
    global _log
    with _lock:
        found, _log = _log or [], None
    return tuple(found)


@contextmanager
def logged(name: str, tensor: torch.Tensor, group: str, size: int) -> Generator[None]:
    """Record what runs inside, if somebody records."""
    global _count
    sequence, _count = _count, _count + 1
    start_ns = time.time_ns()
    yield
    with _lock:
        if _log is not None:
            _log.append(
                LoggedCollective(
                    name=name,
                    thread=threading.get_native_id(),
                    start_ns=start_ns,
                    end_ns=time.time_ns(),
                    elements=tensor.numel(),
                    dtype=str(tensor.dtype).removeprefix("torch."),
                    group=group,
                    size=size,
                    sequence=sequence,
                )
            )
