"""Fewer bits for everything."""

from __future__ import annotations

import pytest

from daceml.simulation.engine import simulate
from daceml.simulation.whatif.low_precision import LowPrecision
from daceml.simulation.whatif.optimization import Estimate, applied
from tests.support.golden import golden
from tests.support.task_stories import graph_of

RUN = graph_of("sgemm gpu0 30", "relu gpu0 10", "bf16_gemm gpu0 14", "adam gpu0 6 phase optimizer")
FIGURES = {"floor_us": Estimate.known(0), "fp8_speedup": Estimate(1.4, fast=2, slow=1)}


def test_in_bfloat16_the_optimizer_gets_faster_too():
    schedule = simulate(applied(LowPrecision(dtype="bf16", **FIGURES), RUN))
    assert schedule["sgemm"] == (0, 10) and schedule["relu"] == (10, 15)
    assert schedule["bf16_gemm"] == (15, 29) and schedule["adam"] == (29, 32)


def test_in_8_bits_products_of_16_bits_get_faster():
    schedule = simulate(
        applied(LowPrecision(dtype="fp8", **FIGURES), graph_of("bf16_gemm gpu0 14", "Half_add gpu0 5"))
    )
    assert schedule["bf16_gemm"] == (0, 10) and schedule["Half_add"] == (10, 15)


@pytest.mark.parametrize(
    ("dtype", "sentence", "facts"),
    [
        ("bf16", "bf16_gemm gpu0 1", ("bf16", "100%")),
        ("fp8", "gemm_e4m3 gpu0 1", ("fp8", "100%")),
        ("bf16", "add_half gpu0 1", ("bf16",)),
        ("bf16", "op cpu 1 kind operator", ()),
        ("int1", "gemm gpu0 1", ("'int1'", "bf16, fp8")),
    ],
)
def test_what_is_there_already_is_refused(dtype: str, sentence: str, facts: tuple[str, ...]):
    reason = LowPrecision(dtype=dtype).check(graph_of(sentence))
    assert reason == golden() and all(fact in reason for fact in facts)
