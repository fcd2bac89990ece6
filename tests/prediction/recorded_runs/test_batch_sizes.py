"""Other batches on other devices: from one run, and along lines through several."""

from __future__ import annotations

import pytest

from daceml.devices.catalogue import find_device
from daceml.errors import PredictionError
from daceml.prediction.recorded_runs.batch_sizes import BatchRun, with_batch
from daceml.prediction.recorded_runs.cross_device import HOST_STAYS, RecordedRun
from tests.support.golden import golden, raises
from tests.support.recorded_operators import ADD, GEMM, Run

H100, A100 = find_device("H100"), find_device("A100-SXM4-80GB")


def run(
    batch: float, *, fixed_us: float = 1000.0, each_us: float = 100.0, device: str | None = None
) -> BatchRun:
    """Products take a fixed time and one for each sample, additions only the latter."""
    told = Run() if device is None else Run(device)
    for _ in range(10):
        told.operator("mine::product", (GEMM, fixed_us + each_us * batch))
        told.operator("mine::add", (ADD, each_us * batch))
    return BatchRun(run=RecordedRun.of(told.wait().trace()), batch=batch)


def busy_us(prediction: object, kind: str) -> float:
    return next(one.duration_us for one in prediction.classes if one.kind == kind)  # pyright: ignore


def test_lines_through_two_runs_have_an_intercept_for_each_kind_of_kernel():
    found = with_batch([run(8), run(16)], 32, H100)
    assert busy_us(found, "GEMM") == pytest.approx(10 * (1000 + 100 * 32))
    assert busy_us(found, "elementwise") == pytest.approx(10 * 100 * 32)
    assert found.batch == 32
    # ten products and additions one after another, while the thread waits
    assert found.step_us == pytest.approx(found.busy_us, rel=0.01)


def test_between_two_runs_and_at_one_of_them():
    runs = [run(8), run(16)]
    assert busy_us(with_batch(runs, 12, H100), "GEMM") == pytest.approx(10 * (1000 + 100 * 12))
    recorded = runs[0].run.on(H100)
    assert with_batch(runs, 8, H100).step_us == pytest.approx(recorded.step_us)


def test_one_run_grows_above_a_floor_and_says_what_it_takes_for_granted():
    found = with_batch([run(8, fixed_us=0.0)], 16, H100)
    assert busy_us(found, "elementwise") == pytest.approx(2 * 10 * 800, rel=0.01)
    assert found.batch == 16 and found.fast_us < found.step_us < found.slow_us
    assert found.assumptions == (HOST_STAYS, golden(), golden())


def test_the_recorded_batch_is_the_recorded_run():
    assert with_batch([run(8)], 8, H100).step_us == run(8).run.on(H100).step_us


def test_lines_are_of_times_on_the_destination():
    here, there = (with_batch([run(8), run(16)], 32, one) for one in (H100, A100))
    assert there.step_us > here.step_us
    assert there.assumptions == (HOST_STAYS, golden())


@pytest.mark.parametrize(
    ("runs", "batch", "facts"),
    [
        ([], 8, ("8", "--batch-recorded N")),
        ([run(8)], 0, ("0", "--batch-recorded N")),
        ([run(8)], float("inf"), ("inf", "--batch-recorded N")),
        ([run(8), run(8)], 16, ("8, 8", "--batch-recorded 8,16")),
        ([run(8), run(16, device="AMD Instinct MI300X")], 32, ("H100-SXM5-80GB", "MI300X")),
    ],
    ids=["no run", "none", "infinite", "twice the same", "several devices"],
)
def test_what_cannot_be_predicted(runs: list[BatchRun], batch: float, facts: tuple[str, ...]):
    with raises(PredictionError, *facts):
        with_batch(runs, batch, H100)
