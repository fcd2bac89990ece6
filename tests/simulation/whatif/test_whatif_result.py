from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import pytest

from daceml.errors import WhatIfError
from daceml.simulation.graph import TaskGraph
from daceml.simulation.primitives.scale import scale
from daceml.simulation.primitives.select import select
from daceml.simulation.whatif.data_parallel import DataParallel
from daceml.simulation.whatif.gradients import Gradients
from daceml.simulation.whatif.optimization import Estimate, Optimization
from daceml.simulation.whatif.whatif_result import predict, predict_each
from tests.simulation.whatif.training_runs import pair
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


@dataclass(frozen=True, kw_only=True)
class LosesWork(FasterKernels):
    """A rule with a fault: it forgets the work that it moves elsewhere."""

    def moved_us(self, graph: TaskGraph) -> float:
        return 90.0


def test_an_answer_that_breaks_a_law_is_refused_and_the_others_stand():
    found, refused = predict_each(run(), [LosesWork(), FasterKernels(name="add")])
    assert [seen.step_us for seen in found] == [90]
    assert [one.code for one in refused] == ["DML614"]
    assert refused[0].reason == golden() and "0.090 ms" in refused[0].reason


def test_steps_of_which_only_the_first_sends_still_take_time():
    """Nothing waits for the all-reduce of the first step, which ends after the second step has."""
    graph = graph_of(
        "l0 cpu 1 step 0 phase backward", "bw gpu0 20 with l0 step 0 phase backward",
        "l1 cpu 1 step 1 phase forward", "fw gpu0 20 with l1 step 1 phase forward",
    )  # fmt: skip
    seen = predict(graph, [DataParallel(topology=pair(), gradients=Gradients.of(1000.0))])
    assert seen.step_us > seen.baseline_us == 20
    assert seen.speedup < 2
