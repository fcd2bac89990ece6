"""What a step needs of a device's memory, and whether it fits."""

from __future__ import annotations

from dataclasses import dataclass

from daceml.devices.specification import Device
from daceml.prediction.model_step import ModelStep, StepMemory
from daceml.prediction.model_steps.step_allocations import reserved_bytes

# ai-dynamo/aiconfigurator's system files, which call them unofficial: `other_mem`, before it was raised to be
# on the safe side, of a CUDA context with the libraries' workspaces; `nccl_mem` of 2, and of 4 to 8 devices.
CONTEXT_BYTES = 551 * 2**20
NCCL_BYTES = {1: 0, 2: 342 * 2**20, 8: 392 * 2**20}


@dataclass(frozen=True, kw_only=True)
class MemoryNeed:
    """Bytes of one device.

    Attributes:
        step: what the step allocates.
        segments: what torch's caching allocator reserves for it; None where only sums are known.
        buckets: copies of gradients that DistributedDataParallel sends.
        reserved: of the context and of what communicates.
        available: what the device has; None where nobody says.
    """

    step: StepMemory
    segments: int | None = None
    buckets: int
    reserved: int
    available: int | None

    @property
    def total(self) -> int:
        """At the step's peak."""
        return (self.step.peak if self.segments is None else self.segments) + self.buckets + self.reserved

    @property
    def fits(self) -> bool | None:
        """Whether the device has as much; None where nobody knows what it has."""
        return None if self.available is None else self.total <= self.available


def memory_need(
    memory: StepMemory,
    device: Device,
    devices: int = 1,
    *,
    step: ModelStep | None = None,
    context_bytes: int | None = None,
) -> MemoryNeed:
    """What a step needs on each of so many devices that train data-parallel.

    Args:
        step: that has this memory, for what the allocator reserves; None counts what is allocated.
        context_bytes: that a process takes of the device before any tensor, as measured; None takes a usual
            size. A processor has no context, and no caching allocator.
    """
    known = device.memory_bytes
    available = None if known is None else int(known.value)
    gpu = device.kind == "gpu"
    nccl = next(size for count, size in NCCL_BYTES.items() if devices <= count) if gpu else 0
    context = (CONTEXT_BYTES if context_bytes is None else context_bytes) if gpu else 0
    buckets = memory.gradients if devices > 1 else 0
    room = None if available is None else available - buckets - context - nccl
    return MemoryNeed(
        step=memory,
        segments=reserved_bytes(step, room) if gpu and step is not None else None,
        buckets=buckets,
        reserved=context + nccl,
        available=available,
    )
