"""How rows are cut into chunks whose sums are shares of a total: from sizes alone, whatever runs them.

A processor has a chunk for each of its threads. A device has a block for each chunk, of as many threads as
a row fills, and wants several blocks on each multiprocessor. Many shares of a column are added up by a warp
or more, so that what follows each other in a sum is, at most,

    rows / chunks + chunks / 32 + 5

terms there, and rows / chunks + 64 on a processor.
"""

from __future__ import annotations

from collections.abc import Sequence

from daceml.sdfg.scalar import Index
from daceml.sdfg.sizes import product, size
from daceml.sdfg.warp_tiling import WARP, threads_of

# Chunks that a loop over rows is cut into, and rows that a chunk should have: its share of a sum is small
# beside what it reads
MOST_CHUNKS, _FEWEST_ROWS = 64, 16
_FEWEST_CHUNKS = 8
# Of rows whose number is not known, and where further dimensions of them follow
_UNKNOWN_CHUNKS, _UNKNOWN_LEADING_CHUNKS = 32, 8
_UNKNOWN_CHUNKS_OF_DEVICE = 256
# Two blocks for each of 132 multiprocessors, and 256 threads for each of these where rows are short (NVIDIA
# H100 Tensor Core GPU Architecture, 2022, table 2)
_DEVICE_BLOCKS = 2 * 132
_DEVICE_THREADS = 256 * _DEVICE_BLOCKS


def cut(extents: Sequence[Index], most: int = MOST_CHUNKS) -> list[int] | str:
    """Into how many chunks each axis of points is cut, or why there are too few points.

    Leading axes first: the points of a chunk follow each other in memory.

    Args:
        most: chunks in all.
    """
    known = product(size(e) for e in extents if isinstance(e, int))
    if all(isinstance(e, int) for e in extents):
        assert isinstance(known, int)
        left = min(most, known // _FEWEST_ROWS)
        if left < _FEWEST_CHUNKS:
            return f"{known} rows are too few to go through in chunks"
    else:
        left = _UNKNOWN_CHUNKS if most <= MOST_CHUNKS else _UNKNOWN_CHUNKS_OF_DEVICE
    counts: list[int] = []
    for place, extent in enumerate(extents):
        if isinstance(extent, int):
            count = _count(extent, left)
        else:
            last = all(e == 1 for e in extents[place + 1 :])
            count = left if last else min(left, _UNKNOWN_LEADING_CHUNKS)
        counts.append(count)
        left = max(1, left // count)
    return counts


def device_chunks(columns: Sequence[Index]) -> int:
    """Chunks of rows, at most, that fill a large device: a block each, or a warp where rows are short."""
    elements = product(map(size, columns))
    threads = threads_of(elements) if isinstance(elements, int) else _DEVICE_THREADS
    return max(_DEVICE_BLOCKS, _DEVICE_THREADS // threads)


def device_threads(chunks: int, columns: Sequence[Index]) -> int:
    """Threads of a device that add up the shares of one column: a warp, or more where columns are few.

    Warps of neighbouring columns share a block, and so the cache lines that both read.
    """
    count = product(map(size, columns))
    fills = not isinstance(count, int) or count * WARP >= _DEVICE_THREADS // 4
    return WARP if fills else threads_of(chunks)


def _count(extent: int, most: int) -> int:
    """Into how many chunks an axis is cut: equal ones, if there are some that are not much fewer."""
    if extent <= most:
        return extent
    even = max(n for n in range(1, most + 1) if extent % n == 0)
    return even if 2 * even > most else -(-extent // -(-extent // most))
