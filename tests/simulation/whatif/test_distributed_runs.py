"""Runs that communicate."""

from __future__ import annotations

import pytest

from daceml.simulation.whatif.distributed_runs import communicates
from tests.support.task_stories import graph_of


@pytest.mark.parametrize(
    ("sentence", "expected"),
    [
        ("ncclDevKernel_AllReduce gpu0 5 kind collective", True),
        ("c10d::allreduce_ cpu 5 kind operator", True),
        ("work cpu 5 kind operator operator gloo:all_reduce", True),
        ("aten::mm cpu 5 kind operator operator aten::mm", False),
        ("reduce_kernel gpu0 5", False),
    ],
)
def test_a_run_communicates_by_kernels_or_by_operators(sentence: str, expected: bool):
    assert communicates(graph_of("fw cpu 1 kind operator", sentence)) is expected
