"""What this machine does in a second, measured once and kept in the cache: what predictions are made of.

What loops of kernels do is measured with such loops (`tuning/speed_loops.cpp`), what torch's kernels do with
these.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from math import exp, log
from pathlib import Path
from typing import Any

import numpy as np
import torch

from daceml.runtime.timing.comparison import disturbing
from daceml.runtime.timing.machine_fingerprint import fingerprint
from daceml.runtime.timing.machine_load import Others
from daceml.toolchain.cache import Cache, digest
from daceml.toolchain.cxx import toolchain
from daceml.tuning.speed_loops import SOURCE, Speeds

_CACHED_ELEMENTS = 2**14
_LEVEL_ELEMENTS = tuple(2**power for power in range(16, 24))  # 0.75 to 96 MiB moved
_STREAM_ELEMENTS = _LEVEL_ELEMENTS[-1]
_MATRIX = 512
_RUNS, _SHORT_RUNS, _PASSES = 9, 60, 6
_DEAREST_REGION_US = 100.0  # what takes longer waited for a core


@dataclass(frozen=True, kw_only=True)
class Machine:
    """Measured speeds; those for one thread say so, the others are those of all of torch's threads.

    Attributes:
        threads: of torch.
        memory_bytes_per_s: of a sum of two arrays of 32 MiB into a third.
        levels: bytes moved by such a sum, and bytes a second, of some sizes up to that: what fits into the
            caches that cores share moves several times as fast.
        streamed_bytes_per_s: of that sum where the result is stored past the caches.
        cached_bytes_per_s: of the same with 64 KiB each, one thread.
        exponentials_per_s, logarithms_per_s, error_functions_per_s, divisions_per_s, powers_per_s: float32,
            from and to the nearest cache, one thread.
        additions_per_s: that wait for each other, one thread.
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
    logarithms_per_s: float
    error_functions_per_s: float
    divisions_per_s: float
    powers_per_s: float
    additions_per_s: float
    streamed_bytes_per_s: float
    levels: tuple[tuple[int, float], ...] = ()

    def bytes_per_s(self, moved: int) -> float:
        """Of a step that moves so many bytes: between sizes that were measured, on a line of logarithms."""
        if not self.levels:
            return self.memory_bytes_per_s
        sizes, speeds = zip(*self.levels, strict=True)
        return exp(float(np.interp(log(max(moved, 1)), [log(s) for s in sizes], [log(s) for s in speeds])))


_disturbed: dict[str, Machine] = {}
"""What this process measured while others had the cores; the next process measures again."""


def this_machine(cache: Cache) -> Machine:
    """The speeds of this machine, measured where the cache does not have them yet."""
    key = digest("machine 6", fingerprint(), toolchain().fingerprint, SOURCE.read_text())
    folder = cache.find("machines", key)
    if folder is None:
        if key in _disturbed:
            return _disturbed[key]
        others = Others()
        found = measure(cache)
        if disturbing(others.share()):
            return _disturbed.setdefault(key, found)

        def build(folder: Path) -> None:
            (folder / "machine.json").write_text(json.dumps(asdict(found)))

        folder = cache.get("machines", key, build)
    told: dict[str, Any] = json.loads((folder / "machine.json").read_text())
    told["levels"] = tuple((size, speed) for size, speed in told["levels"])
    return Machine(**told)


def measure(cache: Cache) -> Machine:
    """Measure; takes two seconds. The number of torch's threads is what it was afterwards.

    Args:
        cache: for the loops that are timed.
    """
    threads, speeds = torch.get_num_threads(), Speeds(cache)
    one = [torch.ones(1) for _ in range(3)]
    matrix = torch.ones(_MATRIX, _MATRIX)

    def per_s(name: str, elements: int = _CACHED_ELEMENTS, calls: int = 16, runs: int = _RUNS) -> float:
        return elements / _best_s(speeds.loop(name, elements), calls, runs=runs)

    # few calls at once: of many, one waits for a core that somebody else has
    levels: dict[int, float] = {}
    for size in _PASSES * _LEVEL_ELEMENTS:
        seen = 12 * per_s("shared_add", size, calls=1, runs=_RUNS)
        levels[12 * size] = max(seen, levels.get(12 * size, 0.0))
    product_s = _best_s(lambda: torch.mm(matrix, matrix), runs=_SHORT_RUNS)
    region_s = _best_s(speeds.loop("region", threads), runs=_SHORT_RUNS)
    torch.set_num_threads(1)
    try:
        call_s = _best_s(lambda: torch.add(one[0], one[1], out=one[2]), 256)
    finally:
        torch.set_num_threads(threads)
    return Machine(
        threads=threads,
        memory_bytes_per_s=levels[12 * _STREAM_ELEMENTS],
        streamed_bytes_per_s=12 * per_s("streamed_add", _STREAM_ELEMENTS, calls=1),
        cached_bytes_per_s=12 * per_s("add"),
        exponentials_per_s=per_s("exp"),
        logarithms_per_s=per_s("log"),
        error_functions_per_s=per_s("erf"),
        divisions_per_s=per_s("divide"),
        powers_per_s=per_s("pow"),
        additions_per_s=per_s("chain"),
        product_flops_per_s=2 * _MATRIX**3 / product_s,
        region_us=min(max(region_s * 1e6, 0.5), _DEAREST_REGION_US),
        call_us=call_s * 1e6,
        levels=_undisturbed(list(levels.items())),
    )


def _undisturbed(levels: Sequence[tuple[int, float]]) -> tuple[tuple[int, float], ...]:
    """No size is slower than larger ones: where it seems so, somebody else had the cores."""
    found: list[tuple[int, float]] = []
    fastest = 0.0
    for size, speed in reversed(levels):
        fastest = max(fastest, speed)
        found.append((size, fastest))
    return tuple(reversed(found))


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
