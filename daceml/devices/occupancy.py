"""How many blocks of a kernel a multiprocessor holds at a time, and what keeps it from holding more.

Sources of the limits: CUDA C++ Programming Guide, "Technical Specifications per Compute Capability", and the
sections on occupancy and shared memory of NVIDIA's tuning guide for each architecture, as named beside it.
Granularities, and the order of the rules: NVIDIA's `cuda_occupancy.h`, of the CUDA toolkit.
"""

from __future__ import annotations

from dataclasses import dataclass

from daceml.errors import ConfigurationError

WARP = 32
_REGISTERS_PER_THREAD = 255
_THREADS_PER_BLOCK = 1024
# warps get registers by these, from one part of the multiprocessor each
_REGISTER_GRANULARITY = 256


@dataclass(frozen=True, kw_only=True)
class MultiprocessorLimits:
    """What one multiprocessor has for the blocks that it runs.

    Attributes:
        warps, blocks: resident at a time.
        registers: of 32 bits; a block may have them all.
        shared_bytes: for all blocks, with what the system keeps of them.
        shared_bytes_per_block: at most, of which a kernel has to ask for more than 48 KiB.
        shared_granularity: blocks get shared memory in multiples of it, in bytes.
        reserved_shared_bytes: of each block, for the system.
        parts: among which warps and registers are divided.
    """

    warps: int
    blocks: int
    parts: int = 4
    registers: int = 65536
    shared_bytes: int
    shared_bytes_per_block: int
    shared_granularity: int
    reserved_shared_bytes: int
    source: str


def _pascal(shared: int, parts: int, source: str) -> MultiprocessorLimits:
    """Before 7.0 no kernel may ask for more than 48 KiB."""
    return MultiprocessorLimits(
        warps=64, blocks=32, parts=parts, shared_bytes=shared << 10, shared_bytes_per_block=48 << 10,
        shared_granularity=256, reserved_shared_bytes=0, source=source,
    )  # fmt: skip


def _volta(warps: int, blocks: int, shared: int, source: str) -> MultiprocessorLimits:
    return MultiprocessorLimits(
        warps=warps, blocks=blocks, shared_bytes=shared << 10, shared_bytes_per_block=shared << 10,
        shared_granularity=256, reserved_shared_bytes=0, source=source,
    )  # fmt: skip


def _ampere(warps: int, blocks: int, shared: int, source: str) -> MultiprocessorLimits:
    """From 8.0 on the system keeps 1 KiB of each block's shared memory."""
    return MultiprocessorLimits(
        warps=warps, blocks=blocks, shared_bytes=shared << 10, shared_bytes_per_block=(shared - 1) << 10,
        shared_granularity=128, reserved_shared_bytes=1024, source=source,
    )  # fmt: skip


# compute capability times 10 -> limits
LIMITS = {
    60: _pascal(64, 2, "Pascal Tuning Guide, 6.0"),
    61: _pascal(96, 4, "Pascal Tuning Guide, 6.1"),
    70: _volta(64, 32, 96, "Volta Tuning Guide"),
    72: _volta(64, 32, 96, "CUDA C++ Programming Guide 12, table of technical specifications, 7.2"),
    75: _volta(32, 16, 64, "Turing Tuning Guide"),
    80: _ampere(64, 32, 164, "NVIDIA Ampere GPU Architecture Tuning Guide"),
    86: _ampere(48, 16, 100, "NVIDIA Ampere GPU Architecture Tuning Guide"),
    87: _ampere(48, 16, 164, "CUDA C++ Programming Guide 13, table of technical specifications, 8.7"),
    89: _ampere(48, 24, 100, "NVIDIA Ada GPU Architecture Tuning Guide"),
    90: _ampere(64, 32, 228, "NVIDIA Hopper Tuning Guide"),
    100: _ampere(64, 32, 228, "NVIDIA Blackwell Tuning Guide, 10.0"),
    103: _ampere(64, 32, 228, "NVIDIA/cccl, libcudacxx, arch_traits.h, 10.3"),
    110: _ampere(48, 24, 228, "NVIDIA/cccl, libcudacxx, arch_traits.h, 11.0"),
    120: _ampere(48, 24, 100, "NVIDIA/cccl, libcudacxx, arch_traits.h, 12.0"),
    121: _ampere(48, 24, 100, "NVIDIA/cccl, libcudacxx, arch_traits.h, 12.1"),
}


@dataclass(frozen=True, kw_only=True)
class Occupancy:
    """What a multiprocessor holds of a kernel.

    Attributes:
        blocks, warps: resident at a time; 0 of a kernel that cannot be launched.
        share: of the warps that the multiprocessor can hold.
        limited_by: whichever of `warps`, `blocks`, `registers`, `shared memory` allow no more.
    """

    blocks: int
    warps: int
    share: float
    limited_by: tuple[str, ...]


def occupancy(architecture: int, *, threads: int, registers: int, shared_bytes: int = 0) -> Occupancy:
    """Occupancy of a kernel in theory: where there are blocks enough, and none of them waits to begin.

    Args:
        architecture: 90 for compute capability 9.0.
        threads: of a block.
        registers: of a thread.
        shared_bytes: of a block, static and dynamic.
    Raises:
        ConfigurationError: the limits of this architecture are not known here.
    Source: NVIDIA, `cuda_occupancy.h`: cudaOccMaxActiveBlocksPerMultiprocessor.
    """
    limits = LIMITS.get(architecture)
    if limits is None:
        raise ConfigurationError(
            f"occupancy is not known for compute capability {architecture / 10:.1f}",
            why=f"there are limits for {', '.join(f'{one / 10:.1f}' for one in LIMITS)}",
            fix="name one of these, or add a row with its source to daceml/devices/occupancy.py",
        )
    warps = -(-threads // WARP)
    allowed = {
        "warps": limits.warps // warps if 0 < threads <= _THREADS_PER_BLOCK else 0,
        "blocks": limits.blocks,
        "registers": _by_registers(limits, warps, registers),
        "shared memory": _by_shared_memory(limits, shared_bytes),
    }
    blocks = min(allowed.values())
    return Occupancy(
        blocks=blocks,
        warps=blocks * warps,
        share=blocks * warps / limits.warps,
        limited_by=tuple(name for name, count in allowed.items() if count == blocks),
    )


def _by_registers(limits: MultiprocessorLimits, warps: int, registers: int) -> int:
    of_warp = _up(max(registers, 1) * WARP, _REGISTER_GRANULARITY)
    # a launch is checked as if its warps were spread over all parts
    if registers > _REGISTERS_PER_THREAD or of_warp * _up(warps, limits.parts) > limits.registers:
        return 0
    resident = limits.parts * (limits.registers // limits.parts // of_warp)
    return resident // max(warps, 1)


def _by_shared_memory(limits: MultiprocessorLimits, shared_bytes: int) -> int:
    if shared_bytes > limits.shared_bytes_per_block:
        return 0
    of_block = _up(shared_bytes + limits.reserved_shared_bytes, limits.shared_granularity)
    return limits.shared_bytes // of_block if of_block else limits.blocks


def _up(value: int, step: int) -> int:
    return -(-value // step) * step
