from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import pytest

from daceml.errors import WhatIfError
from daceml.simulation.graph import TaskGraph
from daceml.simulation.primitives.scale import scale
from daceml.simulation.primitives.select import select
from daceml.simulation.whatif.optimization import Estimate, Optimization
from daceml.simulation.whatif.whatif_result import predict, predict_each
from tests.support.golden import golden, raises
from tests.support.task_stories import graph_of


@dataclass(frozen=True, kw_only=True)
class FasterKernels(Optimization):
    option: ClassVar[str] = "faster"
    title: ClassVar[str] = "faster kernels"
    source: ClassVar[str] = "this test"
    speedup: Estimate = Estimate(2.0, fast=4.0, slow=1.0)
    name: str = "gemm"

    @property
    def family(self) -> str:  # those of other names change other kernels
        return self.name

    def check(self, graph: TaskGraph) -> str | None:
        return None if select(graph, name=self.name).any() else f"no kernel is called {self.name}"

    def apply(self, graph: TaskGraph) -> TaskGraph:
        return scale(graph, select(graph, name=self.name), 1 / self.speedup.likely)

    def assumptions(self, graph: TaskGraph) -> tuple[str, ...]:
        return ("kernels can be faster",)


def run() -> TaskGraph:
    return graph_of("launch cpu 5 at 0", "gemm gpu0 80 with launch at 0", "add gpu0 20 at 80")


def test_an_answer_has_an_interval_assumptions_and_what_was_changed():
    seen = predict(run(), [FasterKernels()])
    assert (seen.baseline_us, seen.step_us, seen.fast_us, seen.slow_us) == (100, 60, 40, 100)
    assert seen.speedup == pytest.approx(100 / 60)
    assert seen.assumptions == ("kernels can be faster",)
    assert seen.change.headline() == golden() and "1" in seen.change.headline()
    assert "gemm" in str(seen.change)


def test_optimisations_are_applied_one_after_the_other():
    seen = predict(run(), [FasterKernels(), FasterKernels(name="add")])
    assert seen.step_us == 50
    assert seen.titles == ("faster kernels", "faster kernels")


def test_each_alone_then_all_together_and_what_is_refused_is_said():
    found, refused = predict_each(
        run(), [FasterKernels(), FasterKernels(name="conv"), FasterKernels(name="add")]
    )
    assert [seen.step_us for seen in found] == [60, 90, 50]
    assert [one.reason for one in refused] == ["no kernel is called conv"]


def test_where_all_are_refused_the_first_reason_is_the_error():
    with raises(WhatIfError, FasterKernels.title) as caught:
        predict_each(run(), [FasterKernels(name="conv"), FasterKernels(name="pool")])
    assert caught.value.why == FasterKernels(name="conv").check(run())
