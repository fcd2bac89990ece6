"""The processor as a device: copies, products and the smallest operation, by all threads of torch."""

from __future__ import annotations

import os
import platform
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter

import torch

from daceml.devices.measured import BEYOND_CACHE, MeasuredDevice
from daceml.operations.measuring.batches import Timed, duration
from daceml.operations.measuring.copies import copy_rates
from daceml.toolchain.processor import cpu_model

_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_FALLBACK_CACHE = 64 << 20  # where the system does not say: larger than most
_EDGE = 1024  # of the matrices that are multiplied: their work is hundreds of times that of reading them


def measure_processor() -> MeasuredDevice:
    """Measure the processor that this process runs on; some seconds."""
    cache = last_cache_bytes(_CACHES)
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return MeasuredDevice(
        name=cpu_model(),
        kind="cpu",
        threads=torch.get_num_threads(),
        cache_bytes=cache,
        copies=copy_rates(_copying, largest=BEYOND_CACHE * (cache or _FALLBACK_CACHE), free_bytes=free),
        call_us=duration(_smallest_operation()).seconds * 1e6,
        products={
            name: 2 * _EDGE**3 / duration(_multiplying(dtype)).seconds for name, dtype in _PRODUCTS.items()
        },
        versions={"torch": str(torch.__version__), "python": platform.python_version()},
        date=datetime.now(UTC).date().isoformat(),
    )


# By the names of `daceml.devices.specification.ARITHMETICS`; what torch multiplies on a processor.
_PRODUCTS = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def last_cache_bytes(folder: Path) -> int | None:
    """Size of the highest level that the system lists, as `32768K`; None where it lists none."""
    sizes: dict[int, int] = {}
    for cache in folder.glob("index*"):
        try:
            text = (cache / "size").read_text().strip()
            sizes[int((cache / "level").read_text())] = int(text[:-1]) * _UNITS[text[-1]]
        except (OSError, ValueError, KeyError, IndexError):
            continue  # of virtual machines, some list levels without a size
    return sizes[max(sizes)] if sizes else None


def _copying(size: int) -> Timed:
    source = torch.randint(0, 256, (size,), dtype=torch.uint8)
    target = torch.empty_like(source)

    def timed(runs: int) -> float:
        start = perf_counter()
        for _ in range(runs):
            target.copy_(source)
        return perf_counter() - start

    return timed


def _multiplying(dtype: torch.dtype) -> Timed:
    left, right = (torch.randn(_EDGE, _EDGE).to(dtype) for _ in range(2))
    product = torch.empty(_EDGE, _EDGE, dtype=dtype)

    def timed(runs: int) -> float:
        start = perf_counter()
        for _ in range(runs):
            torch.mm(left, right, out=product)
        return perf_counter() - start

    return timed


def _smallest_operation() -> Timed:
    x = torch.ones(1)

    def timed(runs: int) -> float:
        start = perf_counter()
        for _ in range(runs):
            torch.add(x, x, out=x)
        return perf_counter() - start

    return timed
