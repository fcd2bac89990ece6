"""Work of Python's in the streams of the fake device, and what the device says of itself."""

from __future__ import annotations

import ctypes
import itertools
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import IntEnum
from functools import lru_cache

import torch

_RUN, _DONE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_long), ctypes.CFUNCTYPE(None, ctypes.c_long)
_work: dict[int, Callable[[], None]] = {}
_numbers = itertools.count(1)


class Order(IntEnum):
    """In which order the work of several streams runs; see `runtime/streams.h`."""

    AT_ONCE = 0
    LATE = 1
    OTHERS_FIRST = 2


@lru_cache(maxsize=1)
def runtime() -> ctypes.CDLL:
    """The stand-in for CUDA's runtime in this process."""
    library = ctypes.CDLL(None)
    library.fake_device_last_refusal.restype = ctypes.c_char_p
    for name in ("refusals", "replays", "launches"):
        getattr(library, f"fake_device_{name}").restype = ctypes.c_long
    return library


def enqueue(device: int, name: str, work: Callable[[], None]) -> None:
    """Put work into torch's current stream of a device; while that is captured, into the graph.

    Raises:
        RuntimeError: the device refuses it.
    """
    number = next(_numbers)
    _work[number] = work
    stream = ctypes.c_void_p(torch._C._cuda_getCurrentRawStream(device))
    arguments = (stream, name.encode(), _run, _done, ctypes.c_long(number))
    with torch.cuda.device(device):
        if runtime().fake_device_enqueue(*arguments) != 0:
            raise RuntimeError(last_refusal())


def end() -> None:
    """Let nothing of Python's run any more, as the interpreter ends."""
    runtime().fake_device_python_ends()


@_RUN
def _run(number: int) -> int:
    try:
        _work[number]()
    except BaseException:
        # the device ends its work; nobody above could catch it
        sys.stderr.write(traceback.format_exc())
        return 1
    return 0


@_DONE
def _done(number: int) -> None:
    _work.pop(number, None)


@contextmanager
def order(wanted: Order) -> Iterator[None]:
    """Let streams run in an order, and in the usual one afterwards."""
    runtime().fake_device_order(int(wanted))
    try:
        yield
    finally:
        runtime().fake_device_order(int(Order.LATE))


def last_refusal() -> str:
    """The last sentence with which the device refused something."""
    return runtime().fake_device_last_refusal().decode()


def refusals() -> int:
    """How often the device has refused something since it was mended."""
    return runtime().fake_device_refusals()


def mend() -> None:
    """Forget refusals, also one that ended the work of the device."""
    runtime().fake_device_mend()


def replays() -> int:
    """Graphs that this process has replayed."""
    return runtime().fake_device_replays()


def launches(part: str) -> int:
    """How often kernels with a text in their name were launched or captured."""
    return runtime().fake_device_launches(part.encode())
