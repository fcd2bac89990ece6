"""Which loops run in parallel."""

from __future__ import annotations

import dace
import pytest

from daceml.transformations.hardware.cpu_schedule import schedule_maps
from tests.runtime.programs import elementwise


def entry(shape: tuple[int, ...]) -> dace.nodes.MapEntry:
    network = elementwise(["_out = _a"], shape)
    schedule_maps(network)
    return next(n for n in network.state.nodes() if isinstance(n, dace.nodes.MapEntry))


def test_a_small_loop_stays_on_one_thread():
    assert entry((8, 32)).map.schedule is dace.ScheduleType.Sequential


@pytest.mark.parametrize(
    ("shape", "collapse"),
    [
        ((8, 32, 112, 112), 2),  # 256 chunks
        ((1, 64, 1024), 2),  # the batch alone is one chunk
        ((65536,), 1),
        ((2, 3, 65536), 3),  # six rows are too few: the inner dimension is split as well
    ],
)
def test_a_large_loop_is_collapsed_until_there_are_enough_chunks(shape: tuple[int, ...], collapse: int):
    scheduled = entry(shape).map
    assert scheduled.schedule is dace.ScheduleType.CPU_Multicore
    assert scheduled.collapse == collapse
