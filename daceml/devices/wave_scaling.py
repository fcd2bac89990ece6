"""A kernel's time on one device, scaled to another device that runs the same kernel.

Source: Yu, Gao, Golikov, Pekhimenko, "Habitat" (USENIX ATC '21): equations 1 and 2 of section 3.3, and 3 of
section 4.2. A kernel runs in waves of as many blocks as the device holds at a time; a wave is faster with
more memory bandwidth or a higher clock, by how much the kernel is bound by either.

Three additions, each of which `Additions` turns off: rates that memory reaches instead of peaks, the share of
a kernel's time that no device shortens, and the rate of the last cache for what fits into it.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, inf
from typing import Literal

from daceml.devices.occupancy import LIMITS, occupancy
from daceml.devices.roofline import memory_bytes_per_s, peak_flops_per_s, ridge_flops_per_byte
from daceml.devices.specification import Device
from daceml.errors import ScalingError


@dataclass(frozen=True, kw_only=True)
class KernelRun:
    """One kernel as it ran: a profiler's record, and what its operator says.

    Attributes:
        blocks: of the grid; threads, shared_bytes: of a block; registers: of a thread.
        flops, bytes_moved: of the whole kernel; None where nobody knows, which makes it bound by memory.
        arithmetic: that its peak is taken of.
        working_set_bytes: as in `roofline.Work`; None where its data come from memory.
    """

    duration_us: float
    blocks: int
    threads: int
    registers: int
    shared_bytes: int = 0
    flops: float | None = None
    bytes_moved: float | None = None
    arithmetic: str = "float32"
    working_set_bytes: float | None = None


@dataclass(frozen=True, kw_only=True)
class Additions:
    """What is done beyond the paper's equations; a device that lacks the figures goes without, and says so.

    Attributes:
        achieved_memory: rates of memory that were measured, of both devices, and never of one alone. (The
            paper does so, too: off is for data sheets.)
        floor: T = c_d + (T_o - c_o) ratio, with c the floor of each device. Of a kernel shorter than c_o all
            is floor.
        cache: the last cache's rate on either device that the working set fits into.
    """

    achieved_memory: bool = True
    floor: bool = True
    cache: bool = True


@dataclass(frozen=True, kw_only=True)
class ScaledKernel:
    """A prediction.

    Attributes:
        ratio: destination over origin, of what is above the floor.
        memory_share: gamma: 1 is bound by memory, 0 by arithmetic.
        origin_wave_blocks, wave_blocks: held at a time by origin and destination.
        notes: what was not known and left out.
    """

    duration_us: float
    ratio: float
    memory_share: float
    origin_wave_blocks: int
    wave_blocks: int
    notes: tuple[str, ...]


def memory_share(flops_per_byte: float, ridge_flops_per_byte: float) -> float:
    """Gamma of equation 3: from 1 without arithmetic to 0.5 at the ridge, and to 0 far beyond it."""
    if flops_per_byte < ridge_flops_per_byte:
        return 1 - 0.5 * flops_per_byte / ridge_flops_per_byte
    return 0.5 * ridge_flops_per_byte / flops_per_byte


def exact_ratio(
    *,
    blocks: int,
    wave_blocks_ratio: tuple[int, int],
    bandwidth_ratio: float,
    clock_ratio: float,
    gamma: float,
) -> float:
    """Equation 1: T_d / T_o for whole waves.

    Args:
        wave_blocks_ratio: (W_o, W_d).
        bandwidth_ratio, clock_ratio: origin over destination: D_o / D_d, C_o / C_d.
    """
    origin, destination = wave_blocks_ratio
    waves = ceil(blocks / destination) / ceil(blocks / origin)
    of_memory: float = (bandwidth_ratio * destination / origin) ** gamma
    return waves * of_memory * clock_ratio ** (1 - gamma)


def many_waves_ratio(
    *, wave_blocks_ratio: tuple[int, int], bandwidth_ratio: float, clock_ratio: float, gamma: float
) -> float:
    """Equation 2: T_d / T_o where there are so many waves that the last one does not count."""
    origin, destination = wave_blocks_ratio
    of_compute: float = (origin / destination * clock_ratio) ** (1 - gamma)
    return bandwidth_ratio**gamma * of_compute


def scale_kernel(
    kernel: KernelRun,
    origin: Device,
    destination: Device,
    *,
    equation: Literal["many waves", "exact"] = "many waves",
    additions: Additions | None = None,
) -> ScaledKernel:
    """The time of a kernel on `destination`, from its time on `origin`.

    Args:
        equation: 2, which the paper predicts with, or 1.
        additions: all of them where nothing is given.
    Raises:
        ScalingError: the kernel cannot run on one of the devices, or they do not run the same kernels.
        DeviceError: a figure is not known that the equations need.
    """
    chosen = Additions() if additions is None else additions
    _check(kernel)
    waves = (wave_blocks(kernel, origin), wave_blocks(kernel, destination))
    notes: list[str] = []
    rates = _memory_rates(kernel, origin, destination, chosen, notes)
    why = "wave scaling takes the ratio of clocks"
    clocks = [device.need("boost_clock_hz", why=why) for device in (origin, destination)]
    gamma = _gamma(kernel, destination, rates[1], notes)
    bandwidth_ratio, clock_ratio = rates[0] / rates[1], clocks[0] / clocks[1]
    if equation == "exact":
        ratio = exact_ratio(
            blocks=kernel.blocks, wave_blocks_ratio=waves, bandwidth_ratio=bandwidth_ratio,
            clock_ratio=clock_ratio, gamma=gamma,
        )  # fmt: skip
    else:
        ratio = many_waves_ratio(
            wave_blocks_ratio=waves, bandwidth_ratio=bandwidth_ratio, clock_ratio=clock_ratio, gamma=gamma
        )
    return ScaledKernel(
        duration_us=_above_floor(kernel.duration_us, ratio, origin, destination, chosen, notes),
        ratio=ratio,
        memory_share=gamma,
        origin_wave_blocks=waves[0],
        wave_blocks=waves[1],
        notes=tuple(notes),
    )


def wave_blocks(kernel: KernelRun, device: Device) -> int:
    """W: blocks of this kernel that the whole device holds at a time.

    Raises:
        ScalingError: it cannot be launched there, or nothing is known of how blocks are held.
    """
    architecture = device.compute_capability
    if architecture is None or architecture not in LIMITS:
        raise ScalingError(
            f"it is not known how {device.name} holds blocks of a kernel",
            why="it is no device of NVIDIA's: it runs other kernels"
            if architecture is None
            else f"daceml/devices/occupancy.py has no limits for compute capability {architecture / 10:.1f}",
            fix="predict the operation by a measurement of that device, or by its roofline",
        )
    multiprocessors = device.need("multiprocessors", why="a wave fills all of them")
    held = occupancy(
        architecture, threads=kernel.threads, registers=kernel.registers, shared_bytes=kernel.shared_bytes
    )
    if held.blocks == 0:
        limits = LIMITS[architecture]
        raise ScalingError(
            f"the kernel cannot be launched on {device.name}",
            why=f"its blocks exceed what there is of {', '.join(held.limited_by)}\n"
            f"they have {kernel.threads} threads of {kernel.registers} registers and {kernel.shared_bytes} "
            f"bytes of shared memory; a block may have 1024 threads of 255 registers, {limits.registers} "
            f"registers in all, and {limits.shared_bytes_per_block} bytes",
            fix="it runs another kernel for this operation: predict that by a measurement or its roofline",
        )
    return held.blocks * int(multiprocessors)


def _check(kernel: KernelRun) -> None:
    amounts = [kernel.duration_us, kernel.flops or 0.0, kernel.bytes_moved or 0.0]
    if kernel.blocks <= 0 or kernel.threads <= 0 or not all(0 <= one < inf for one in amounts):
        raise ScalingError(
            "this is no record of a kernel that ran",
            why=f"{kernel.blocks} blocks of {kernel.threads} threads took {kernel.duration_us} us for "
            f"{kernel.flops} operations and {kernel.bytes_moved} bytes",
            fix="take grid, block and duration from the profiler's event",
        )


def _memory_rates(
    kernel: KernelRun, origin: Device, destination: Device, additions: Additions, notes: list[str]
) -> tuple[float, float]:
    unmeasured = [one.name for one in (origin, destination) if one.achieved_bytes_per_s is None]
    achieved = additions.achieved_memory and not unmeasured
    if additions.achieved_memory and unmeasured:
        notes.append(f"the memory of {' and '.join(unmeasured)} was not measured: peaks of both")
    working_set = kernel.working_set_bytes if additions.cache else None
    if working_set is not None:
        unknown = [one.name for one in (origin, destination) if one.l2_bytes is None]
        if unknown:
            notes.append(f"the last cache of {' and '.join(unknown)} is not known: caches of both left out")
            working_set = None
    rates: list[float] = []
    for device in (origin, destination):
        rate = memory_bytes_per_s(device, working_set_bytes=working_set, achieved=achieved)
        notes += rate.notes
        rates.append(rate.per_s)
    return rates[0], rates[1]


def _gamma(kernel: KernelRun, destination: Device, bytes_per_s: float, notes: list[str]) -> float:
    if kernel.arithmetic != "float32":
        peak_flops_per_s(destination, kernel.arithmetic)  # a type that is not there is done by another kernel
    if kernel.flops is None or kernel.bytes_moved is None:
        notes.append("operations or bytes are not known: bound by memory, as section 4.2 of the paper does")
        return 1.0
    if kernel.bytes_moved == 0:
        return 0.0 if kernel.flops else 1.0
    ridge = ridge_flops_per_byte(destination, kernel.arithmetic, bytes_per_s=bytes_per_s)
    return memory_share(kernel.flops / kernel.bytes_moved, ridge)


def _above_floor(
    duration_us: float,
    ratio: float,
    origin: Device,
    destination: Device,
    additions: Additions,
    notes: list[str],
) -> float:
    if not additions.floor:
        return duration_us * ratio
    if origin.floor_us is None or destination.floor_us is None:
        unknown = [one.name for one in (origin, destination) if one.floor_us is None]
        notes.append(f"the floor of {' and '.join(unknown)} was not measured: all of the time is scaled")
        return duration_us * ratio
    floor_us = min(duration_us, origin.floor_us.value)
    return floor_us * destination.floor_us.value / origin.floor_us.value + (duration_us - floor_us) * ratio
