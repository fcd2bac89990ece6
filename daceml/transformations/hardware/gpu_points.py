"""One thread for each point of a map: what every scope in canonical form can be on a device.

for i, j in 0..n, 0..m:          for each block g of 256 threads:
    body(i, j)             ->        for each thread t:  p = 256 g + t, if p < n m
                                         body(p / m, p % m)

Neighbouring threads have neighbouring last indices, so accesses along memory are coalesced.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import dace
import sympy
from dace import dtypes, symbolic
from dace.sdfg import nodes
from dace.subsets import Range

from daceml.sdfg.scalar import Index
from daceml.sdfg.sizes import product, size
from daceml.sdfg.warp_tiling import FEWEST_THREADS, WARP
from daceml.sdfg.warp_tiling import THREAD as THREAD_SYMBOL
from daceml.sdfg.wrapping import wrap

THREADS = 256  # of a block: 8 blocks fill a multiprocessor's 2,048 threads where registers allow it

BLOCK, ROW, THREAD = "g", "w", str(THREAD_SYMBOL)


def schedule_points(
    state: dace.SDFGState, entry: nodes.MapEntry, *, threads: int = THREADS
) -> nodes.MapEntry:
    """Spread the points of a top-level map over threads; the map over blocks. Mutates the state.

    Args:
        entry: a map in canonical form: from 0 on, its points write different elements.
        threads: of a block, at most.
    """
    ranges: list[tuple[Any, Any, Any]] = entry.map.range.ranges
    steps = [(low, _quotient(high - low + step, step), step) for low, high, step in ranges]
    total: Any = math.prod((extent for _, extent, _ in steps), start=sympy.Integer(1))
    width = min(threads, -(-int(total) // WARP) * WARP) if total.is_Integer else threads
    block = symbolic.symbol(BLOCK, dace.int64)
    indices = _indices(width * block + THREAD_SYMBOL, [extent for _, extent, _ in steps])
    points = [low + step * index for (low, _, step), index in zip(steps, indices, strict=True)]
    entry.map.range = Range([(point, point, 1) for point in points])
    entry.map.schedule = dtypes.ScheduleType.Sequential
    whole = total.is_Integer and int(total) % width == 0
    in_block: Index = width if whole else sympy.Min(width, total - width * block)
    blocks = _quotient(total + width - 1, width)
    inner = wrap(state, entry, {THREAD: in_block}, dtypes.ScheduleType.GPU_ThreadBlock)
    outer = wrap(state, inner, {BLOCK: blocks}, dtypes.ScheduleType.GPU_Device)
    outer.map.gpu_block_size = [width, 1, 1]
    return outer


def schedule_rows(state: dace.SDFGState, entry: nodes.MapEntry) -> nodes.MapEntry:
    """Rows of a nest whose last parameter is a thread (`sdfg/warp_tiling.py`) over blocks.

    Rows of a warp share a block: a multiprocessor holds 32 blocks, and 64 warps. Their threads never wait for
    each other, so the last block may have fewer rows. Others have a block each.
    """
    *extents, last = [size(extent) for extent in entry.map.range.size()]
    threads, rows = int(last), sympy.sympify(product(extents))
    in_block = FEWEST_THREADS // WARP if threads == WARP else 1
    if rows.is_Integer:
        in_block = min(in_block, int(rows))
    row: Any = in_block * symbolic.symbol(BLOCK, dace.int64)
    box: dict[str, Index] = {THREAD: threads}
    if in_block > 1:
        whole = rows.is_Integer and int(rows) % in_block == 0
        box = {ROW: in_block if whole else sympy.Min(in_block, rows - row), THREAD: threads}
        row += symbolic.symbol(ROW, dace.int64)
    places = _indices(row, extents or [1])
    entry.map.params = entry.map.params[:-1] or ["i0"]
    entry.map.range = Range([(place, place, 1) for place in places])
    entry.map.schedule = dtypes.ScheduleType.Sequential
    blocks = _quotient(rows + in_block - 1, in_block)
    inner = wrap(state, entry, box, dtypes.ScheduleType.GPU_ThreadBlock)
    outer = wrap(state, inner, {BLOCK: blocks}, dtypes.ScheduleType.GPU_Device)
    outer.map.gpu_block_size = [threads, in_block, 1]
    return outer


def _indices(place: Any, extents: Sequence[Any]) -> list[Any]:
    """The index in each dimension of a place in row-major order."""
    found: list[Any] = []
    for extent in reversed(extents[1:]):
        found.append(symbolic.CMod(place, extent))
        place = _quotient(place, extent)
    return [place, *reversed(found)][: len(extents)]


def _quotient(a: Any, b: Any) -> Any:
    return a if b == 1 else symbolic.int_floor(a, b)
