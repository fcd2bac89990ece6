"""What the benchmark of memory measures, and how it judges."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from benchmarks.distributed.memory import bars, regrets_of
from benchmarks.distributed.memory_process import peak
from benchmarks.distributed.memory_traces import placements
from daceml.simulation.memory import AllocatorEvents, CachingAllocator

MB = 1 << 20


def way(
    name: str, measured_bytes: float, us: float, *, told_bytes: float = 0, told_us: float = 0
) -> dict[str, Any]:
    return {
        "way": name,
        "measured_bytes": measured_bytes,
        "predicted_bytes": told_bytes or measured_bytes,
        "measured_us": us,
        "interval_us": (us - 1, us + 1),
        "predicted_us": told_us or us,
    }


def judged(*ways: dict[str, Any]) -> dict[str, float | None]:
    return {
        bar.name: bar.figure
        for bar in bars([{"what": "ways to hold less", "model": "m", "ways": list(ways)}])
    }


PEAKS = "recomputation against accumulation: peaks that are ranked wrongly"
TIMES = "recomputation against accumulation: times that are ranked wrongly"
GOOD = (way("as it is", 100, 50), way("recomputation", 60, 70), way("accumulation of 2", 70, 55))


def test_ranks_as_measured():
    seen = judged(*GOOD)
    assert (seen[PEAKS], seen[TIMES]) == (0, 0)


def test_wrong_ranks_count():
    seen = judged(*GOOD[:2], way("accumulation of 2", 70, 55, told_bytes=50, told_us=90))
    assert (seen[PEAKS], seen[TIMES]) == (1, 1)
    assert seen["recomputation and accumulation: largest error of a peak"] == pytest.approx(2 / 7)


def test_what_is_too_close_is_not_ranked():
    close = (way("recomputation", 100, 70), way("accumulation of 2", 100.5, 71, told_us=60, told_bytes=90))
    seen = judged(*close)
    assert (seen[PEAKS], seen[TIMES]) == (None, None)


def test_a_choice_costs_what_the_best_one_would_have_saved():
    assert list(regrets_of(GOOD)) == [0.0, 0.0]
    slow = (*GOOD[:2], way("accumulation of 2", 70, 55, told_us=90))
    assert list(regrets_of(slow)) == pytest.approx([0.0, 70 / 55 - 1])
    too_large = (*GOOD[:2], way("accumulation of 2", 70, 55, told_bytes=10))
    assert list(regrets_of(too_large)) == [float("inf"), 0.0]


def test_nothing_measured_is_nothing_met():
    seen = bars([])
    assert len(seen) == 10
    assert not any(bar.met for bar in seen)


def test_blocks_of_the_model_itself_are_placed_as_it_did():
    generator = np.random.default_rng(0)
    allocator = CachingAllocator()
    taken: list[tuple[int, int]] = []
    rows: list[tuple[int, int]] = []
    for _ in range(200):
        if taken and generator.random() < 0.45:
            address, size = taken.pop(int(generator.integers(len(taken))))
            allocator.give_back(address)
            rows.append((address, -size))
        else:
            asked = int(generator.integers(1, 3 * MB if generator.random() < 0.5 else 40_000))
            address = allocator.take(asked)
            size = allocator.size_of(address)
            taken.append((address, size))
            rows.append((address, size))
    block, size = np.array(rows, np.int64).T
    events = AllocatorEvents(time_us=np.arange(len(rows), dtype=np.float64), block=block, size_bytes=size)
    seen = placements(events)
    # what was free is a guess: all segments at once, where the run asked for one after the other
    assert seen["same_address"] / seen["blocks"] > 0.5
    swapped = AllocatorEvents(time_us=events.time_us, block=-block + 2**62, size_bytes=size)
    assert placements(swapped)["same_address"] < seen["same_address"]


@pytest.mark.slow
def test_a_peak_is_measured_and_foretold():
    row = peak("perceptron", "adam")
    assert row["measured_bytes"] > 30e6
    assert abs(row["error"]) < 0.05
    assert row["notes"] == []
