"""How long an operation takes, at least and as expected, by what it computes and moves.

Sources: Williams, Waterman, Patterson, "Roofline" (CACM 52:4, 2009) for the two limits and the ridge point;
NVIDIA's "GPU Performance Background User's Guide" for max(compute, memory) as the time of an operation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from daceml.devices.specification import ARITHMETICS, Device
from daceml.errors import DeviceError

# Where nobody measured a device: the medians of those of the catalogue that were (a test keeps them so).
USUAL_SHARE_OF_MEMORY = 0.82
USUAL_SHARE_OF_GEMM = 0.83
# Boards of so little power do not keep their boost clock in large products. The share is the mean of a P4
# and a T4, of each the 99th percentile over NeuSight's products of float32 above 1 ms; that of its boards of
# 250 W is 0.83, as above.
SMALL_BOARD_W = 75.0
SMALL_BOARD_SHARE_OF_GEMM = 0.57
# Where nobody measured a cache. An assumption, made to be on the slow side.
USUAL_CACHE_TIMES_MEMORY = 2.0
# Where nobody measured the smallest kernel: `mem_empirical_constant_latency` of ai-dynamo/aiconfigurator's
# system files, which call it unofficial.
USUAL_FLOOR_US = 3.0


@dataclass(frozen=True, kw_only=True)
class Work:
    """What an operation does.

    Attributes:
        flops: a multiplication with its addition are two.
        bytes_moved: read and written, each tensor once.
        arithmetic: one of `ARITHMETICS`.
        working_set_bytes: of all that it touches, where that may lie in the last cache when the operation
            begins; None where it comes from memory.
    """

    flops: float
    bytes_moved: float
    arithmetic: str = "float32"
    working_set_bytes: float | None = None


@dataclass(frozen=True, kw_only=True)
class RooflineTime:
    """A time and what it is made of.

    Attributes:
        compute_us, memory_us: each limit alone; the larger one counts. floor_us: what is added to it.
        limited_by: the largest of the three.
        notes: where a figure of the device is not known and what stood in for it.
    """

    compute_us: float
    memory_us: float
    floor_us: float
    notes: tuple[str, ...]

    @property
    def duration_us(self) -> float:
        return self.floor_us + max(self.compute_us, self.memory_us)

    @property
    def limited_by(self) -> Literal["compute", "memory", "launch"]:
        if self.floor_us > max(self.compute_us, self.memory_us):
            return "launch"
        return "compute" if self.compute_us > self.memory_us else "memory"


@dataclass(frozen=True, kw_only=True)
class Rate:
    """What a device does in a second, and what had to be assumed."""

    per_s: float
    notes: tuple[str, ...] = ()


def lower_bound(work: Work, device: Device) -> RooflineTime:
    """No run on this device is faster than its data sheet: by peaks alone, without a launch.

    What fits into the last cache may lie there, and nobody states a cache's peak: then memory is no limit.
    A device whose clock rises above that of its peaks may beat them by as much: see the notes of the H100. A
    device that was measured and has no data sheet, such as a processor, is not bounded.

    Raises:
        DeviceError: there is a data sheet without this peak.
    """
    sheet = device.peak_flops_per_s or device.memory_bytes_per_s is not None
    if not sheet and device.achieved_bytes_per_s is not None:
        notes = (f"no peak of {device.name} is known: nothing bounds it",)
        return RooflineTime(compute_us=0.0, memory_us=0.0, floor_us=0.0, notes=notes)
    memory_us, notes = 0.0, ()
    if fits_cache(device, work.working_set_bytes):
        notes = (
            f"the data may lie in the cache of {device.name}, whose peak is not known: no limit by memory",
        )
    elif work.bytes_moved > 0:
        rate = device.need("memory_bytes_per_s", why="a bound is made of peaks, not of what was reached")
        memory_us = work.bytes_moved / rate * 1e6
    compute_us = work.flops / peak_flops_per_s(device, work.arithmetic) * 1e6 if work.flops > 0 else 0.0
    return RooflineTime(compute_us=compute_us, memory_us=memory_us, floor_us=0.0, notes=notes)


def expected(work: Work, device: Device) -> RooflineTime:
    """What an operation takes that uses the device as well as large copies and products do.

    Raises:
        DeviceError: neither a peak nor an achieved rate is known.
    """
    notes: list[str] = []
    compute_us = memory_us = 0.0
    if work.flops > 0:
        compute = achieved_flops_per_s(device, work.arithmetic)
        compute_us = work.flops / compute.per_s * 1e6
        notes += compute.notes
    if work.bytes_moved > 0:
        memory = memory_bytes_per_s(device, working_set_bytes=work.working_set_bytes)
        memory_us = work.bytes_moved / memory.per_s * 1e6
        notes += memory.notes
    if device.floor_us is None:
        notes.append(f"the floor of {device.name} was not measured: {USUAL_FLOOR_US} us")
    floor_us = USUAL_FLOOR_US if device.floor_us is None else device.floor_us.value
    return RooflineTime(compute_us=compute_us, memory_us=memory_us, floor_us=floor_us, notes=tuple(notes))


def ridge_flops_per_byte(device: Device, arithmetic: str, *, bytes_per_s: float | None = None) -> float:
    """Operations a byte above which a kernel is limited by arithmetic: peak over the rate of memory.

    Args:
        bytes_per_s: of memory; None is the peak.
    """
    why = "the ridge point is the peak of arithmetic over the rate of memory"
    rate = device.need("memory_bytes_per_s", why=why) if bytes_per_s is None else bytes_per_s
    return peak_flops_per_s(device, arithmetic) / rate


def peak_flops_per_s(device: Device, arithmetic: str) -> float:
    """The dense peak.

    Raises:
        DeviceError: no such arithmetic, or this device is not known to have it.
    """
    if arithmetic not in ARITHMETICS:
        raise DeviceError(
            f"no peak is kept for an arithmetic {arithmetic!r}", fix=f"name one of {', '.join(ARITHMETICS)}"
        )
    known = ", ".join(device.peak_flops_per_s) or "none"
    return device.need(f"peak_flops_per_s.{arithmetic}", why=f"peaks are known for {known}")


def achieved_flops_per_s(device: Device, arithmetic: str) -> Rate:
    """Of large products of matrices: as measured, or the usual share of the peak."""
    measured = device.achieved_gemm_flops_per_s.get(arithmetic)
    if measured is not None:
        return Rate(per_s=measured.value)
    peak = peak_flops_per_s(device, arithmetic)
    power = device.board_power_w
    small = power is not None and power.value <= SMALL_BOARD_W
    share = SMALL_BOARD_SHARE_OF_GEMM if small else USUAL_SHARE_OF_GEMM
    board = f", as other boards of at most {SMALL_BOARD_W:g} W" if small else ""
    note = f"the {arithmetic} rate of {device.name} was not measured: {share} of the peak{board}"
    return Rate(per_s=share * peak, notes=(note,))


def memory_bytes_per_s(
    device: Device, *, working_set_bytes: float | None = None, achieved: bool = True
) -> Rate:
    """Of memory, or of the last cache where the working set fits into it.

    Args:
        achieved: as measured, else the usual share of the peak; False is the peak itself, and of a cache what
            is assumed above it.
    Raises:
        DeviceError: memory was not measured and its peak is not known.
    """
    if fits_cache(device, working_set_bytes):
        if achieved and device.l2_bytes_per_s is not None:
            return Rate(per_s=device.l2_bytes_per_s.value)
        memory = memory_bytes_per_s(device, achieved=achieved)
        note = f"the cache of {device.name} was not measured: {USUAL_CACHE_TIMES_MEMORY} times its memory"
        return Rate(per_s=USUAL_CACHE_TIMES_MEMORY * memory.per_s, notes=(*memory.notes, note))
    if achieved and device.achieved_bytes_per_s is not None:
        return Rate(per_s=device.achieved_bytes_per_s.value)
    peak = device.need("memory_bytes_per_s", why="what an operation moves goes through memory")
    if not achieved:
        return Rate(per_s=peak)
    note = f"the memory of {device.name} was not measured: {USUAL_SHARE_OF_MEMORY} of the peak"
    return Rate(per_s=USUAL_SHARE_OF_MEMORY * peak, notes=(note,))


def fits_cache(device: Device, working_set_bytes: float | None) -> bool:
    """Whether all that an operation touches may lie in the last cache; False where either is not known."""
    return (
        working_set_bytes is not None
        and device.l2_bytes is not None
        and working_set_bytes < device.l2_bytes.value
    )
