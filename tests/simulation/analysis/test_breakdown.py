from __future__ import annotations

from daceml.simulation.analysis.breakdown import breakdown
from daceml.simulation.engine import simulate
from tests.support.task_stories import graph_of


def test_everybody_works_alone_together_or_not_at_all():
    seen = breakdown(
        simulate(
            graph_of(
                "launch cpu 10",
                "gemm gpu0 30 with launch + 5 phase backward",
                "sync cpu 2 after gemm",
                "python cpu 8 gap 5",
            )
        )
    )
    # launch 0-10, gemm 5-35, sync 35-37, gap 37-42, python 42-50
    assert (seen.total_us, seen.cpu_only_us, seen.both_us, seen.device_only_us) == (50, 20, 5, 25)
    assert seen.idle_us == 0
    assert seen.by_phase_us == {"backward": 30}
    assert seen.by_kind_us == {"kernel": 30}


def test_a_thread_that_waits_does_not_work():
    seen = breakdown(simulate(graph_of("a cpu 1", "k gpu0 4 after a + 10", "b cpu 1 after k")))
    assert (seen.cpu_only_us, seen.device_only_us, seen.idle_us) == (2, 4, 10)


def test_streams_that_overlap_are_one_time_but_two_sums():
    seen = breakdown(simulate(graph_of("a gpu0 10", "b gpu1 10 gap 5")))
    assert seen.device_only_us == 15
    assert seen.by_kind_us == {"kernel": 20}
