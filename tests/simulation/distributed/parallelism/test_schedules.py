"""Pipeline schedules: what each stage does in which order, and how much it has to keep."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daceml.simulation.distributed.parallelism.plan import ParallelPlan
from daceml.simulation.distributed.parallelism.schedules import Slot, schedule_of


def told(slots: tuple[Slot, ...]) -> str:
    """F0 B0: forward and backward of the first micro-batch; of the second chunk with a mark behind."""
    return " ".join(f"{'F' if s.forward else 'B'}{s.micro_batch}{chr(39) * s.chunk}" for s in slots)


def plan_of(name: str, stages: int, micro_batches: int, chunks: int = 1) -> ParallelPlan:
    return ParallelPlan(pipeline=stages, global_batch=micro_batches, schedule=name, chunks=chunks)  # pyright: ignore


def test_gpipe_goes_forward_with_all_and_back_from_the_last():
    assert [told(slots) for slots in schedule_of(plan_of("gpipe", 2, 3))] == ["F0 F1 F2 B2 B1 B0"] * 2


def test_one_forward_one_backward_begins_with_as_many_as_there_are_stages_behind():
    assert [told(slots) for slots in schedule_of(plan_of("1f1b", 3, 4))] == [
        "F0 F1 F2 B0 F3 B1 B2 B3",
        "F0 F1 B0 F2 B1 F3 B2 B3",
        "F0 B0 F1 B1 F2 B2 F3 B3",
    ]


def test_interleaved_groups_go_through_all_chunks():
    # Narayanan et al., SC '21, figure 4: two chunks of each stage
    assert [told(slots) for slots in schedule_of(plan_of("interleaved", 2, 4, 2))] == [
        "F0 F1 F0' F1' F2 B0' F3 B1' F2' B0 F3' B1 B2' B3' B2 B3",
        "F0 F1 F0' B0' F1' B1' F2 B0 F3 B1 F2' B2' F3' B3' B2 B3",
    ]


@given(
    st.sampled_from(["gpipe", "1f1b", "interleaved"]), st.integers(2, 5), st.integers(1, 4), st.integers(2, 3)
)
def test_every_stage_does_everything_once_and_forward_first(name: str, stages: int, groups: int, chunks: int):
    chunks = chunks if name == "interleaved" else 1
    plan = plan_of(name, stages, groups * stages, chunks)
    for slots in schedule_of(plan):
        wanted = {(m, c, f) for m in range(groups * stages) for c in range(chunks) for f in (True, False)}
        assert Counter((s.micro_batch, s.chunk, s.forward) for s in slots) == Counter(wanted)
        place = {(s.micro_batch, s.chunk, s.forward): number for number, s in enumerate(slots)}
        assert all(place[m, c, True] < place[m, c, False] for m, c, f in wanted if f)


def most_held(slots: Sequence[Slot]) -> int:
    """Micro-batches that are begun and not finished, at the most."""
    return max(accumulate(1 if slot.forward else -1 for slot in slots))


@pytest.mark.parametrize("stage", range(4))
def test_stages_keep_fewer_micro_batches_the_later_they_are(stage: int):
    assert most_held(schedule_of(plan_of("1f1b", 4, 16))[stage]) == 4 - stage
    assert most_held(schedule_of(plan_of("gpipe", 4, 16))[stage]) == 16
