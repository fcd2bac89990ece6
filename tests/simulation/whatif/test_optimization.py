"""What every optimisation refuses, whatever it does."""

from __future__ import annotations

import pytest

from daceml.errors import WhatIfError
from daceml.simulation.whatif.amp import AutomaticMixedPrecision
from daceml.simulation.whatif.data_loader import DataLoaderWorkers
from daceml.simulation.whatif.faster_device import FasterDevice
from daceml.simulation.whatif.larger_batch import LargerBatch
from daceml.simulation.whatif.low_precision import LowPrecision
from daceml.simulation.whatif.optimization import Estimate
from daceml.simulation.whatif.whatif_result import predict, predict_each
from tests.support.golden import golden, raises
from tests.support.task_stories import graph_of


@pytest.mark.parametrize(
    ("make", "facts"),
    [
        (lambda: Estimate.known(-1), ["-1"]),
        (lambda: Estimate.known(float("inf")), ["inf"]),
        (lambda: Estimate.known(float("nan")), ["nan"]),
        (lambda: Estimate(3, fast=2, slow=1), ["3", "2", "1"]),
        (lambda: DataLoaderWorkers(workers=-1), ["data-loader", "workers", "-1"]),
        (lambda: DataLoaderWorkers(slowdown=Estimate.known(0.0)), ["data-loader", "slowdown", "0"]),
        (
            lambda: AutomaticMixedPrecision(compute_speedup=Estimate.known(0.0)),
            ["amp", "compute_speedup", "0"],
        ),
        (lambda: LargerBatch(ratio=1e300), ["batch", "ratio", "1e+300"]),
    ],
)
def test_figures_that_mean_nothing_are_refused_by_name(make, facts: list[str]):
    with raises(WhatIfError, *facts):
        make()


def run():
    return graph_of("launch cpu 5 at 0", "volta_sgemm gpu0 80 with launch at 0", "add gpu0 20 at 80")


def test_alternatives_are_not_applied_on_top_of_each_other():
    with raises(WhatIfError, AutomaticMixedPrecision.title):
        predict(run(), [AutomaticMixedPrecision(), AutomaticMixedPrecision()])
    found, refused = predict_each(run(), [AutomaticMixedPrecision(), LowPrecision()])
    assert len(found) == 2
    assert refused[0].reason == golden()
    assert AutomaticMixedPrecision.title in refused[0].reason and LowPrecision.title in refused[0].reason


@pytest.mark.parametrize(
    "option",
    [
        LargerBatch(ratio=0.5),
        LargerBatch(ratio=3.0),
        FasterDevice(compute=Estimate.known(0.5), memory=Estimate.known(0.5)),
        FasterDevice(compute=Estimate.known(2.0), memory=Estimate.known(2.0)),
    ],
)
def test_the_best_figures_are_best_in_either_direction(option):
    from daceml.simulation.engine import simulate
    from daceml.simulation.whatif.optimization import applied

    spans = [simulate(applied(option.at(side), run())).makespan_us for side in ("fast", "likely", "slow")]
    assert spans == sorted(spans)
