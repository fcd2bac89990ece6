"""The card of a trace, and the formats in which it computes."""

from __future__ import annotations

import pytest

from benchmarks.trace_examples import as_bytes, training_run
from daceml.profiling.kineto import trace_of
from daceml.simulation.building.build import build
from daceml.simulation.graph import TaskGraph
from daceml.simulation.whatif.amp import AutomaticMixedPrecision
from daceml.simulation.whatif.low_precision import LowPrecision
from tests.support.golden import golden

V100 = {"id": 0, "name": "Tesla V100", "computeMajor": 7, "computeMinor": 0, "warpSize": 32}
A100 = {"id": 0, "name": "NVIDIA A100", "computeMajor": 8, "computeMinor": 0, "warpSize": 32}
H100 = {"id": 0, "name": "NVIDIA H100", "computeMajor": 9, "computeMinor": 0, "warpSize": 32}
MI300 = {"id": 0, "name": "AMD Instinct MI300X", "computeMajor": 9, "computeMinor": 4, "warpSize": 64}


def on(*cards: dict[str, object]) -> TaskGraph:
    return build(trace_of(as_bytes(training_run() | {"deviceProperties": list(cards)}), "run"))


@pytest.mark.parametrize(
    ("card", "formats"),
    [(V100, ("fp16",)), (A100, ("fp16", "bf16")), (H100, ("fp16", "bf16", "fp8")), (MI300, None)],
)
def test_formats_follow_the_compute_capability(card: dict[str, object], formats: tuple[str, ...] | None):
    graph = on(card)
    assert (graph.card, graph.formats) == (card["name"], formats)


def test_of_several_cards_that_which_worked_counts_and_of_none_nothing_is_known():
    assert on(V100, A100 | {"id": 1}).card == "Tesla V100"
    assert on().formats is None
    assert on({"id": 0, "name": "Tesla V100"}).formats is None


def test_a_format_that_the_card_lacks_is_refused():
    reason = AutomaticMixedPrecision(dtype="bf16").check(on(V100))
    assert reason == golden() and "Tesla V100" in reason and "bf16" in reason
    assert "fp8" in (LowPrecision(dtype="fp8").check(on(A100)) or "")
    assert LowPrecision(dtype="bf16").check(on(A100)) is None
    assert AutomaticMixedPrecision().check(on(V100)) is None
