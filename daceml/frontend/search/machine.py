"""What this machine does in a second, measured once and kept in the cache: what predictions are made of."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from math import exp, log
from pathlib import Path
from typing import Any

import numpy as np
import torch

from daceml.runtime.cache import Cache, digest
from daceml.runtime.processor import cpu_model

_STREAM_ELEMENTS = 2**23
_CACHED_ELEMENTS = 2**14
_LEVEL_ELEMENTS = tuple(2**power for power in range(16, 23))  # 0.75 to 48 MiB moved
_MATRIX = 512
_RUNS, _SHORT_RUNS = 9, 60
_DEAREST_REGION_US = 100.0  # what takes longer waited for a core


@dataclass(frozen=True, kw_only=True)
class Machine:
    """Measured speeds; those for one thread say so, the others are torch's with all of its threads.

    Attributes:
        threads: of torch.
        memory_bytes_per_s: of a sum of two arrays of 32 MiB into a third.
        levels: bytes moved by such a sum, and bytes a second, of some sizes up to that: what fits into the
            caches that cores share moves several times as fast.
        cached_bytes_per_s: of the same with 64 KiB each, one thread.
        exponentials_per_s: float32, from and to the nearest cache, one thread.
        product_flops_per_s: of a product of two square float32 matrices.
        region_us: of opening a parallel region.
        call_us: of calling a function of torch's.
    """

    threads: int
    memory_bytes_per_s: float
    cached_bytes_per_s: float
    exponentials_per_s: float
    product_flops_per_s: float
    region_us: float
    call_us: float
    levels: tuple[tuple[int, float], ...] = ()

    def bytes_per_s(self, moved: int) -> float:
        """Of a step that moves so many bytes: between sizes that were measured, on a line of logarithms."""
        if not self.levels:
            return self.memory_bytes_per_s
        sizes, speeds = zip(*self.levels, strict=True)
        return exp(float(np.interp(log(max(moved, 1)), [log(s) for s in sizes], [log(s) for s in speeds])))


def fingerprint() -> str:
    """What decides how fast programs are besides themselves: processor, cores, torch's threads."""
    cores, threads = len(os.sched_getaffinity(0)), torch.get_num_threads()
    return f"{cpu_model()}, {cores} cores, {threads} {'thread' if threads == 1 else 'threads'}"


def this_machine(cache: Cache) -> Machine:
    """The speeds of this machine, measured where the cache does not have them yet."""

    def build(folder: Path) -> None:
        (folder / "machine.json").write_text(json.dumps(asdict(measure())))

    folder = cache.get("machines", digest("machine 4", fingerprint()), build)
    told: dict[str, Any] = json.loads((folder / "machine.json").read_text())
    told["levels"] = tuple((size, speed) for size, speed in told["levels"])
    return Machine(**told)


def measure() -> Machine:
    """Measure; takes about a second. The number of torch's threads is what it was afterwards."""
    threads = torch.get_num_threads()
    large = [torch.ones(_STREAM_ELEMENTS) for _ in range(3)]
    small = [torch.ones(_CACHED_ELEMENTS) for _ in range(3)]
    one = [torch.ones(1) for _ in range(3)]
    matrix = torch.ones(_MATRIX, _MATRIX)
    middle = [torch.ones(2**17) for _ in range(3)]  # torch shares out from 2 ** 15 elements
    memory_s = _best_s(lambda: torch.add(large[0], large[1], out=large[2]))
    # few calls at once: of many, one waits for a core that somebody else has
    levels = [_level([array[:elements] for array in large]) for elements in _LEVEL_ELEMENTS]
    largest = 12 * _STREAM_ELEMENTS, 12 * _STREAM_ELEMENTS / memory_s
    product_s = _best_s(lambda: torch.mm(matrix, matrix), runs=_SHORT_RUNS)
    shared_s = _best_s(lambda: torch.add(middle[0], middle[1], out=middle[2]), 4, runs=_SHORT_RUNS)
    torch.set_num_threads(1)
    try:
        cached_s = _best_s(lambda: torch.add(small[0], small[1], out=small[2]), 64)
        exponentials_s = _best_s(lambda: torch.exp(small[0], out=small[1]), 64)
        call_s = _best_s(lambda: torch.add(one[0], one[1], out=one[2]), 256)
        alone_s = _best_s(lambda: torch.add(middle[0], middle[1], out=middle[2]), 4, runs=_SHORT_RUNS)
    finally:
        torch.set_num_threads(threads)
    return Machine(
        threads=threads,
        memory_bytes_per_s=largest[1],
        cached_bytes_per_s=12 * _CACHED_ELEMENTS / max(cached_s - call_s, 1e-7),
        exponentials_per_s=_CACHED_ELEMENTS / max(exponentials_s - call_s, 1e-7),
        product_flops_per_s=2 * _MATRIX**3 / product_s,
        region_us=min(max((shared_s - alone_s / threads) * 1e6, 1.0), _DEAREST_REGION_US),
        call_us=call_s * 1e6,
        levels=_undisturbed((*levels, largest)),
    )


def _undisturbed(levels: Sequence[tuple[int, float]]) -> tuple[tuple[int, float], ...]:
    """No size is slower than larger ones: where it seems so, somebody else had the cores."""
    found: list[tuple[int, float]] = []
    fastest = 0.0
    for size, speed in reversed(levels):
        fastest = max(fastest, speed)
        found.append((size, fastest))
    return tuple(reversed(found))


def _level(arrays: list[torch.Tensor]) -> tuple[int, float]:
    """Bytes that the sum of two arrays moves, and in a second."""
    moved = 12 * arrays[0].numel()
    return moved, moved / _best_s(lambda: torch.add(arrays[0], arrays[1], out=arrays[2]), runs=_SHORT_RUNS)


def _best_s(run: Callable[[], object], calls: int = 1, *, runs: int = _RUNS) -> float:
    """Seconds of a call, the best of several runs."""
    best = float("inf")
    with torch.no_grad():
        for _ in range(runs):
            start = time.perf_counter()
            for _ in range(calls):
                run()
            best = min(best, (time.perf_counter() - start) / calls)
    return best
