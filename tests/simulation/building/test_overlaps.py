"""Streams whose recorded work overlaps."""

from __future__ import annotations

from tests.support.golden import golden
from tests.support.recorded_calls import Recording


def run(lasts: float) -> Recording:
    recording = Recording()
    for number in range(4):
        at = 100.0 * number
        recording.call("cudaLaunchKernel", at, 5, (f"k{number}", 7, at + 8, lasts))
    return recording


def test_kernels_that_a_stream_cannot_have_run_at_once_are_a_warning():
    graph = run(1000.0).graph()
    assert graph.warnings == (golden(),) and "gpu 0 stream 7" in graph.warnings[0]


def test_a_tail_that_overlaps_the_next_kernel_is_usual():
    assert run(101.0).graph().warnings == ()
