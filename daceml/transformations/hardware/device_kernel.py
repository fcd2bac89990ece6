"""One kernel for a device: how its map is flattened, goes in vectors, and is spread over threads."""

from __future__ import annotations

import dace
from dace import dtypes

from daceml.sdfg.scopes import top_maps
from daceml.sdfg.warp_tiling import THREAD
from daceml.transformations.hardware.gpu_flattening import flatten_dimensions
from daceml.transformations.hardware.gpu_points import Spread, schedule_points, schedule_rows
from daceml.transformations.hardware.gpu_vectors import use_vectors, use_vectors_in_rows


def lower_for_device(sdfg: dace.SDFG) -> Spread:
    """Put the map of a kernel over blocks and threads. Mutates the SDFG, which is the kernel's own."""
    (state,) = sdfg.states()
    (entry,) = top_maps(state)
    entry.map.schedule = dtypes.ScheduleType.Sequential
    if str(THREAD) in entry.map.params:
        use_vectors_in_rows(sdfg, state, entry)
        return schedule_rows(state, entry)
    flatten_dimensions(sdfg, state, entry)
    use_vectors(sdfg, state, entry)
    return schedule_points(state, entry)
