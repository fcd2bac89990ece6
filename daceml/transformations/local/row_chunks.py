"""How rows are cut into chunks whose sums are shares of a total: from sizes alone, whatever runs them.

A processor has a chunk for each of its threads. A device has a block for each chunk, of as many threads as
a row fills, and wants several blocks on each multiprocessor. So many shares are added up in two steps, in
groups and then those: the place of a chunk is two numbers. What follows each other in a sum is then, at most,

    rows / chunks + 64 + 64

terms where one axis is cut; with several axes the groups, or what is in one, may be some more than twice as
many.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from daceml.sdfg.scalar import Index
from daceml.sdfg.sizes import product, size
from daceml.sdfg.warp_tiling import threads_of

# Chunks that a loop over rows is cut into, and rows that a chunk should have: its share of a sum is small
# beside what it reads
MOST_CHUNKS, _FEWEST_ROWS = 64, 16
_FEWEST_CHUNKS = 8
# Of rows whose number is not known, and where further dimensions of them follow
_UNKNOWN_CHUNKS, _UNKNOWN_LEADING_CHUNKS = 32, 8
_UNKNOWN_CHUNKS_OF_DEVICE = 256
# Shares that one thread adds up
_MOST_TOGETHER = 64
# Two blocks for each of 132 multiprocessors, and 256 threads for each of these where rows are short (NVIDIA
# H100 Tensor Core GPU Architecture, 2022, table 2)
_DEVICE_BLOCKS = 2 * 132
_DEVICE_THREADS = 256 * _DEVICE_BLOCKS


def cut(extents: Sequence[Index], most: int = MOST_CHUNKS) -> list[tuple[int, ...]] | str:
    """Into how many chunks each axis of points is cut, or why there are too few points.

    Leading axes first: the points of a chunk follow each other in memory.

    Args:
        most: chunks in all.
    Returns:
        for each axis the extents of what counts its chunks; several where there are more than are added up
        together, and then the last chunks may be empty.
    """
    known = product(size(e) for e in extents if isinstance(e, int))
    if all(isinstance(e, int) for e in extents):
        assert isinstance(known, int)
        left = min(most, known // _FEWEST_ROWS)
        if left < _FEWEST_CHUNKS:
            return f"{known} rows are too few to go through in chunks"
    else:
        left = _UNKNOWN_CHUNKS if most <= MOST_CHUNKS else _UNKNOWN_CHUNKS_OF_DEVICE
    counts: list[tuple[int, ...]] = []
    for place, extent in enumerate(extents):
        if isinstance(extent, int):
            parts = _parts(extent, left)
        else:
            last = all(e == 1 for e in extents[place + 1 :])
            parts = _square(left if last else min(left, _UNKNOWN_LEADING_CHUNKS))
        counts.append(parts)
        left = max(1, left // math.prod(parts))
    return counts


def device_chunks(columns: Sequence[Index]) -> int:
    """Chunks of rows, at most, that fill a large device: a block each, or a warp where rows are short."""
    elements = product(map(size, columns))
    threads = threads_of(elements) if isinstance(elements, int) else _DEVICE_THREADS
    return max(_DEVICE_BLOCKS, _DEVICE_THREADS // threads)


def groups_of(chunks: Sequence[int]) -> int:
    """How many leading dimensions of the box of chunks are groups; 0 where all are added up together."""
    if math.prod(chunks) <= _MOST_TOGETHER:
        return 0
    return min(
        range(1, len(chunks)),
        key=lambda place: max(math.prod(chunks[:place]), math.prod(chunks[place:])),
        default=0,
    )


def _parts(extent: int, most: int) -> tuple[int, ...]:
    if min(extent, most) <= _MOST_TOGETHER:
        return (_count(extent, most),)
    most = min(extent, most)
    pairs = itertools.combinations_with_replacement(range(2, _MOST_TOGETHER + 1), 2)
    fitting = (p for p in pairs if extent % math.prod(p) == 0 and math.prod(p) <= most)
    even = max(fitting, key=lambda p: (math.prod(p), p[0]), default=(1, 1))
    if 2 * even[0] * even[1] > most:
        return even
    rows = -(-extent // most)
    return _square(-(-extent // rows))


def _square(count: int) -> tuple[int, ...]:
    """So many chunks, or a few more, in two dimensions where they are many."""
    if count <= _MOST_TOGETHER:
        return (count,)
    inner = math.isqrt(count - 1) + 1
    return (-(-count // inner), inner)


def _count(extent: int, most: int) -> int:
    """Into how many chunks an axis is cut: equal ones, if there are some that are not much fewer."""
    if extent <= most:
        return extent
    even = max(n for n in range(1, most + 1) if extent % n == 0)
    return even if 2 * even > most else -(-extent // -(-extent // most))
