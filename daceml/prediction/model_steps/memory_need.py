"""What a step needs of a device's memory, and whether it fits."""

from __future__ import annotations

from dataclasses import dataclass

from daceml.devices.specification import Device
from daceml.prediction.model_step import StepMemory

# ai-dynamo/aiconfigurator's system files, which call them unofficial: `other_mem`, before it was raised to be
# on the safe side, of a CUDA context with the libraries' workspaces; `nccl_mem` of 2, and of 4 to 8 devices.
CONTEXT_BYTES = 551 * 2**20
NCCL_BYTES = {1: 0, 2: 342 * 2**20, 8: 392 * 2**20}


@dataclass(frozen=True, kw_only=True)
class MemoryNeed:
    """Bytes of one device.

    Attributes:
        step: what the step allocates.
        buckets: copies of gradients that DistributedDataParallel sends.
        reserved: of the context and of what communicates.
        available: what the device has; None where nobody says.
    """

    step: StepMemory
    buckets: int
    reserved: int
    available: int | None

    @property
    def total(self) -> int:
        """At the step's peak."""
        return self.step.peak + self.buckets + self.reserved

    @property
    def fits(self) -> bool | None:
        """Whether the device has as much; None where nobody knows what it has."""
        return None if self.available is None else self.total <= self.available


def memory_need(step: StepMemory, device: Device, devices: int = 1) -> MemoryNeed:
    """What a step needs on each of so many devices that train data-parallel."""
    known = device.memory_bytes
    nccl = next(size for count, size in NCCL_BYTES.items() if devices <= count)
    return MemoryNeed(
        step=step,
        buckets=step.gradients if devices > 1 else 0,
        reserved=CONTEXT_BYTES + nccl,
        available=None if known is None else int(known.value),
    )
