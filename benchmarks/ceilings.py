"""What the machine can do at most in a second: bytes from memory, special functions, products of matrices."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

_STREAM_ELEMENTS = 40 * 2**20
_CACHED_ELEMENTS = 2**14
_MATRIX = 1536


@dataclass(frozen=True, kw_only=True)
class Ceilings:
    """Measured with all threads of torch, the best of several runs.

    Attributes:
        bytes_per_s: of a sum of two arrays into a third, each 160 MiB; what the processor reads before it
            writes is not counted.
        exponentials_per_s: float32, from and to the nearest cache.
        flops_per_s: of a product of two square float32 matrices.
    """

    bytes_per_s: float
    exponentials_per_s: float
    flops_per_s: float = float("inf")

    def floor_us(self, moved_bytes: float, exponentials: float) -> float:
        """The least time for so many bytes and exponentials, done at once."""
        return max(moved_bytes / self.bytes_per_s, exponentials / self.exponentials_per_s) * 1e6


def measure(runs: int = 15) -> Ceilings:
    """Measure the machine; it should be quiet."""
    a, b, c = (torch.ones(_STREAM_ELEMENTS) for _ in range(3))
    stream_s = _best_s(lambda: torch.add(a, b, out=c), runs)
    threads = torch.get_num_threads()
    x = torch.linspace(-5.0, 5.0, _CACHED_ELEMENTS)
    y = torch.empty_like(x)
    repeats = 64

    def exponentials() -> None:
        for _ in range(repeats):
            torch.exp(x, out=y)

    torch.set_num_threads(1)
    try:
        exponential_s = _best_s(exponentials, runs) / (repeats * _CACHED_ELEMENTS)
    finally:
        torch.set_num_threads(threads)
    matrix = torch.ones(_MATRIX, _MATRIX)
    product_s = _best_s(lambda: torch.mm(matrix, matrix), runs)
    return Ceilings(
        bytes_per_s=3 * 4 * _STREAM_ELEMENTS / stream_s,
        exponentials_per_s=threads / exponential_s,
        flops_per_s=2 * _MATRIX**3 / product_s,
    )


def _best_s(run: Callable[[], object], runs: int) -> float:
    best = float("inf")
    for _ in range(runs):
        start = time.perf_counter()
        run()
        best = min(best, time.perf_counter() - start)
    return best
