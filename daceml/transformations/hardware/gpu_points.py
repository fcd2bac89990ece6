"""Points over threads, rows over warps or blocks: what a scope in canonical form can be on a device.

for i, j in 0..n, 0..m:          for each thread:  for p = 256 g + t; p < n m; p += all threads:
    body(i, j)             ->        body(p / m, p % m)

Neighbouring threads have neighbouring last indices, so accesses along memory are coalesced. The launch gives
a large kernel no more blocks than keep the device busy (`daceml/device.h`), and each goes through several. A
kernel that every device can take at once has a thread for each point, and no loop.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import dace
import sympy
from dace import dtypes, symbolic
from dace.sdfg import nodes
from dace.subsets import Range

from daceml.sdfg.scalar import Index
from daceml.sdfg.sizes import Size, product, size
from daceml.sdfg.warp_tiling import FEWEST_THREADS, WARP
from daceml.sdfg.warp_tiling import THREAD as THREAD_SYMBOL
from daceml.sdfg.wrapping import wrap

THREADS = 256  # of a block: 8 blocks fill a multiprocessor's 2,048 threads where registers allow it

# What the smallest devices of daceml, Jetsons of 8 multiprocessors, take at once: 8,192 threads on each, see
# `threads_at_once` in daceml/device.h. No launch of so few threads is ever cut, so these need no loop.
NEVER_CUT = 8 * 8192

POINT, BLOCK, ROW, THREAD = "p", "g", "w", str(THREAD_SYMBOL)


@dataclass(frozen=True, kw_only=True)
class Spread:
    """How much there is for the blocks of a kernel.

    Attributes:
        points: one a thread, in a loop over POINT; None of rows, of which each BLOCK has its own.
        goes_round: whether threads or blocks go on with what is left, so that any grid is right.
    """

    points: Size | None
    goes_round: bool


def schedule_points(state: dace.SDFGState, entry: nodes.MapEntry, *, threads: int = THREADS) -> Spread:
    """Spread the points of a top-level map over threads; the map over blocks. Mutates the state.

    The loop over POINT goes through all points from a thread's first one on. That it takes every so many of
    them is up to the code (`codegen_cuda/kernel_unit.py`), which alone knows the grid and the size of blocks.

    Args:
        entry: a map in canonical form: from 0 on, its points write different elements.
        threads: of a block, at most.
    """
    ranges: list[tuple[Any, Any, Any]] = entry.map.range.ranges
    steps = [(low, _quotient(high - low + step, step), step) for low, high, step in ranges]
    total: Any = math.prod((extent for _, extent, _ in steps), start=sympy.Integer(1))
    width = min(threads, -(-int(total) // WARP) * WARP) if total.is_Integer else threads
    point: Any = symbolic.symbol(POINT, dace.int64)
    indices = _indices(point, [extent for _, extent, _ in steps])
    points = [low + step * index for (low, _, step), index in zip(steps, indices, strict=True)]
    entry.map.range = Range([(place, place, 1) for place in points])
    entry.map.schedule = dtypes.ScheduleType.Sequential
    every = wrap(state, entry, {POINT: total}, dtypes.ScheduleType.Sequential)
    first = width * symbolic.symbol(BLOCK, dace.int64) + THREAD_SYMBOL
    every.map.range = Range([(first, total - 1, 1)])
    inner = wrap(state, every, {THREAD: width}, dtypes.ScheduleType.GPU_ThreadBlock)
    blocks = _quotient(total + width - 1, width)
    outer = wrap(state, inner, {BLOCK: blocks}, dtypes.ScheduleType.GPU_Device)
    outer.map.gpu_block_size = [width, 1, 1]
    return Spread(points=size(total), goes_round=_may_be_cut(blocks * width))


def schedule_rows(state: dace.SDFGState, entry: nodes.MapEntry) -> Spread:
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
    return Spread(points=None, goes_round=_may_be_cut(blocks * in_block * threads))


def _may_be_cut(threads: Any) -> bool:
    """Whether a device may be too small to have all threads of a launch at once."""
    return not (threads.is_Integer and int(threads) <= NEVER_CUT)


def _indices(place: Any, extents: Sequence[Any]) -> list[Any]:
    """The index in each dimension of a place in row-major order."""
    found: list[Any] = []
    for extent in reversed(extents[1:]):
        found.append(symbolic.CMod(place, extent))
        place = _quotient(place, extent)
    return [place, *reversed(found)][: len(extents)]


def _quotient(a: Any, b: Any) -> Any:
    return a if b == 1 else symbolic.int_floor(a, b)
