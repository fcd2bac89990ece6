"""What a task is: its kind, its phase of a training step, and the lane on which it runs."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Literal


class TaskKind(IntEnum):
    """What a task does."""

    CALL = 0  # of the CUDA or HIP runtime, on a CPU thread
    OPERATOR = 1  # on a CPU thread, of a run that has no device
    DATA = 2  # a batch that is loaded on a CPU thread
    KERNEL = 3
    COPY = 4
    MEMSET = 5
    COLLECTIVE = 6  # a kernel that talks to other devices, or a transfer that stands for one
    MARKER = 7  # a moment: a step begins or ends

    @property
    def on_device(self) -> bool:
        """Whether a GPU, or the network between GPUs, runs it."""
        return self in (TaskKind.KERNEL, TaskKind.COPY, TaskKind.MEMSET, TaskKind.COLLECTIVE)


class Phase(IntEnum):
    """The part of a training step that a task belongs to."""

    OTHER = 0
    FORWARD = 1
    BACKWARD = 2
    OPTIMIZER = 3
    DATA = 4


class EdgeKind(IntEnum):
    """Why a task waits for one of another lane."""

    LAUNCH = 0  # a kernel for the call that launches it
    SYNC = 1  # a call for what the device has still to do
    STREAM_WAIT = 2  # a stream for an event of another one
    HANDOVER = 3  # a CPU thread for another one
    QUEUE = 4  # a launch for room in the launch queue
    CONTENTION = 5  # a kernel for room on a device that another stream's kernel fills
    CHANNEL = 6  # communication for the gradients it sends, and who needs them for communication
    USER = 7  # whatever a transformation says


@dataclass(frozen=True, kw_only=True)
class Lane:
    """What runs one task after another: a CPU thread, a stream of a device, a channel of the network.

    Attributes:
        kind: of what runs there.
        name: unique in a graph, such as "thread 4515", "gpu 0 stream 7".
        device: of a stream or channel.
        ordered: its tasks run in the order of the graph. Where that is False, whichever is ready first goes
            first, or a scheduling policy decides.
    """

    kind: Literal["cpu", "stream", "channel"]
    name: str
    device: int | None = None
    ordered: bool = True
