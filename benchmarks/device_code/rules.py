"""Rules for every kernel, one entry a rule.

- **Vectors.** The machine code accesses an array as widely as the kernel's text does. Vectors of 16 bytes are
  one access; a scalar access next to it is the tail, or an address that is no multiple of 16.
- **Stack.** 256 bytes a thread hold a few vectors that the compiler indexes at run time. A larger frame is an
  array in memory: every access goes through the caches.
- **Occupancy.** A multiprocessor holds a quarter of the warps that it has room for. A row gets a block of at
  most 512 threads, "each may have 128 registers then" (`MOST_THREADS` in `daceml/sdfg/warp_tiling.py`):
  65,536 registers hold one such block, 16 warps of 64. The half that `daceml/codegen_cuda/block_size.py` asks
  nvcc for is a wish: code that would spill for it is not taken. So it is no bar.
- **Grid.** A launch that moves more than a megabyte has a block for each multiprocessor. The largest grid
  decides: launches whose kernel goes round keep at least eight blocks for each (`daceml/device.h`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from benchmarks.device_code.cases import DEVICES
from daceml.devices.catalogue import find_device
from daceml.devices.specification import Device

Row = Mapping[str, Any]

STACK_BYTES = 256
LEAST_OCCUPANCY = 0.25
# A tenth of an H100's multiprocessors moves so much in 3 us, at a tenth of 3.35e12 bytes/s. A launch takes
# about as long to begin, so idle multiprocessors cost little where there is less.
LARGE_BYTES = 1_000_000


@dataclass(frozen=True, kw_only=True)
class Rule:
    """A limit for every kernel of a case.

    Attributes:
        key: that rows and known misses go by.
        title: of its bar, for an architecture.
        needs: what a row has to have, or the rule is not measured.
        figure: of a kernel; above `limit`, the kernel is named.
        say: what is said of such a kernel.
        largest: whether the bar's figure is the largest of all kernels; else it is how many are above.
        blocks_only: whether networks need not keep it.
    """

    key: str
    title: Callable[[int], str]
    needs: tuple[str, ...]
    figure: Callable[[Row], float]
    say: Callable[[Row], str]
    limit: float = 0
    unit: str = ""
    largest: bool = False
    blocks_only: bool = False


def device_of(architecture: int) -> Device:
    """The device whose multiprocessors are to be filled."""
    return find_device(DEVICES[architecture])


def multiprocessors(architecture: int) -> int:
    """Of the device that an architecture is judged by."""
    known = device_of(architecture).multiprocessors
    assert known is not None, "the catalogue has them for all devices that are named here"
    return int(known.value)


def _idle(row: Row) -> int:
    """Multiprocessors without a block, where the launch moves enough to want all."""
    return multiprocessors(row["architecture"]) - row["blocks"] if row["bytes_moved"] > LARGE_BYTES else 0


RULES = (
    Rule(
        key="compiles",
        title=lambda _: "kernels that do not compile",
        needs=("kernel",),
        figure=lambda row: "failure" in row,
        say=lambda row: row["failure"].splitlines()[0],
    ),
    Rule(
        key="spills",
        title=lambda _: "spilled by a thread",
        needs=("spill_bytes",),
        figure=lambda row: row["spill_bytes"],
        say=lambda row: f"{row['spill_bytes']} bytes",
        unit="bytes",
        largest=True,
        blocks_only=True,
    ),
    Rule(
        key="stack",
        title=lambda _: "stack of a thread",
        needs=("stack_bytes",),
        figure=lambda row: row["stack_bytes"],
        say=lambda row: f"{row['stack_bytes']:,} bytes",
        limit=STACK_BYTES,
        unit="bytes",
        largest=True,
    ),
    Rule(
        key="vectors",
        title=lambda _: "kernels without vectors that their text promises",
        needs=("broken_vectors",),
        figure=lambda row: len(row["broken_vectors"]),
        say=lambda row: f"no {', no '.join(row['broken_vectors'])}",
    ),
    Rule(
        key="occupancy",
        title=lambda _: f"kernels with an occupancy below {LEAST_OCCUPANCY:.0%}",
        needs=("occupancy",),
        figure=lambda row: row["occupancy"] < LEAST_OCCUPANCY,
        say=lambda row: f"{row['occupancy']:.0%} with {row['registers']} registers",
    ),
    Rule(
        key="grid",
        title=lambda architecture: (
            f"launches of more than {LARGE_BYTES / 1e6:g} MB with fewer blocks than the"
            f" {multiprocessors(architecture)} multiprocessors of {device_of(architecture).name}"
        ),
        needs=("blocks", "bytes_moved"),
        figure=_idle,
        say=lambda row: f"{row['blocks']} blocks for {row['bytes_moved'] / 1e6:.1f} MB",
    ),
)
