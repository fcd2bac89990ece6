"""A recorded run: events as arrays, whatever wrote them. Files become one of these in `kineto`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

UNKNOWN = -1  # of an integer that an event does not carry


class EventKind(IntEnum):
    """What an event tells."""

    OPERATOR = (
        0  # of the framework, on a CPU thread: "aten::conv2d", "autograd::engine::evaluate_function: ..."
    )
    ANNOTATION = (
        1  # of the user or the framework, on a CPU thread: "ProfilerStep#5", "Optimizer.step#Adam.step"
    )
    PYTHON = 2  # a Python function or module
    CALL = 3  # of the CUDA or HIP runtime or driver
    SYNC = 4  # what a call waits for, as newer profilers say it
    KERNEL = 5
    COPY = 6
    MEMSET = 7
    DEVICE_ANNOTATION = 8  # an annotation, as long as the device works for it

    @property
    def on_device(self) -> bool:
        """Whether it is work of a device."""
        return self in (EventKind.KERNEL, EventKind.COPY, EventKind.MEMSET)


@dataclass(frozen=True, kw_only=True)
class TraceLane:
    """A CPU thread, or a stream of a device.

    Attributes:
        process: the operating system's number of the process, as text; of a stream, the device's.
        thread: number of the thread, or of the stream, as text.
    """

    kind: Literal["thread", "stream"]
    process: str
    thread: str
    device: int | None = None

    @property
    def name(self) -> str:
        """Unique in a trace."""
        return f"gpu {self.device} stream {self.thread}" if self.kind == "stream" else f"thread {self.thread}"


@dataclass(frozen=True, kw_only=True, eq=False)
class Events:
    """Columns of n events with a duration, by start; of those that start together, the longest first.

    Attributes:
        kind: [n] `EventKind`.
        name: [n] index in the names of the trace.
        lane: [n] index in its lanes.
        start_us: [n] from the first event of the trace.
        duration_us: [n] never below zero.
        correlation: [n] of a call and the work that it launched; UNKNOWN where there is none.
        external_id: [n] of an operator and what it called, UNKNOWN likewise.
        sequence: [n] number of autograd's node, shared by an operator and its backward; UNKNOWN likewise.
        details: what else each event says ("grid", "bytes", "Input Dims"), as the profiler spelt it.
    """

    kind: Ints
    name: Ints
    lane: Ints
    start_us: Floats
    duration_us: Floats
    correlation: Ints
    external_id: Ints
    sequence: Ints
    details: tuple[Mapping[str, Any], ...]

    def __len__(self) -> int:
        return len(self.kind)

    @property
    def end_us(self) -> Floats:
        """[n] when each one ended."""
        return self.start_us + self.duration_us

    def of(self, *kinds: EventKind) -> NDArray[np.intp]:
        """Indices of the events of these kinds, by start."""
        return np.flatnonzero(np.isin(self.kind, kinds))


@dataclass(frozen=True, kw_only=True, eq=False)
class Memory:
    """Columns of what allocators did, by time.

    Attributes:
        device: -1 is the CPU.
        size_bytes: above zero where memory was taken, below where it was given back.
        allocated_bytes, reserved_bytes: in all afterwards; NaN where the profiler does not say.
        address: of the block; UNKNOWN likewise.
    """

    time_us: Floats
    device: Ints
    size_bytes: Floats
    allocated_bytes: Floats
    reserved_bytes: Floats
    address: Ints


@dataclass(frozen=True, kw_only=True, eq=False)
class Trace:
    """What a profiler recorded of one process.

    Attributes:
        source: file that it came from, or what recorded it.
        first_us: the clock of the machine at time zero of the events, microseconds.
        devices: properties of each device as the profiler spelt them ("numSms", "computeMajor", ...).
        rank, world_size: of distributed runs, else None.
        gradient_pairs: [k, 2] indices of the operators joined by the profiler: forward, backward.
        header: everything else that the file says of the run.
        notes: what was wrong with the file and could be mended, one sentence each.
        warnings: why figures of the run may be wrong; shown before them.
        left_out: reason -> how many events of the file were left out for it.
    """

    source: str
    events: Events
    lanes: tuple[TraceLane, ...]
    names: tuple[str, ...]
    memory: Memory
    first_us: float = 0.0
    devices: Sequence[Mapping[str, Any]] = ()
    rank: int | None = None
    world_size: int | None = None
    gradient_pairs: Ints = field(default_factory=lambda: np.zeros((0, 2), np.int64))
    header: Mapping[str, Any] = field(default_factory=dict[str, Any])
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    left_out: Mapping[str, int] = field(default_factory=dict[str, int])

    def name_of(self, event: int) -> str:
        """What the profiler called an event."""
        return self.names[self.events.name[event]]
