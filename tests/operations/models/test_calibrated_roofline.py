"""Rates are found again where measurements were made with them, and what was not measured is refused."""

from __future__ import annotations

import numpy as np

from daceml.errors import EstimationError
from daceml.operations.database.records import Operand, Operation
from daceml.operations.models.calibrated_roofline import FEWEST, calibrated
from daceml.operations.work.row_work import row_work
from tests.support.golden import raises

L2_BYTES = 4e6
RATE = 1e12  # bytes a second
FLOOR_S, CALL_S = 20e-6, 5e-6


def shapes(count: int, *, seed: int = 0, longest: int = 4000) -> list[tuple[int, int]]:
    random = np.random.default_rng(seed)
    return [(int(2 ** random.uniform(6, 14)), int(random.integers(8, longest))) for _ in range(count)]


def softmaxes(count: int, **more: int) -> list[Operation]:
    return [
        Operation(operator="aten::softmax", operands=(Operand(shape=shape, dtype="float32"),))
        for shape in shapes(count, **more)
    ]


def planted(operations: list[Operation]) -> np.ndarray:
    """Memory at RATE, the cache four times as fast; rows beyond 1,024 elements are read twice."""
    work = row_work(operations)
    held = np.clip(L2_BYTES / work.bytes_moved, 0, 1)
    above = CALL_S + (1 + work.mode) * work.bytes_moved * (1 - held + held / 4) / RATE
    return np.maximum(FLOOR_S, above)


def test_rates_that_were_planted_are_found_again():
    known, unseen = softmaxes(400), softmaxes(100, seed=1)
    model = calibrated(known, planted(known), l2_bytes=L2_BYTES)
    np.testing.assert_allclose(model.predict(unseen), planted(unseen), rtol=0.05)
    short, long = model.kernels
    assert short is not None and long is not None
    # far from the floor what counts is the rate of memory
    large = [Operation(operator="aten::softmax", operands=(Operand(shape=(1 << 20, 1000), dtype="float32"),))]
    np.testing.assert_allclose(model.predict(large), planted(large), rtol=0.02)


def test_noise_of_some_percent_is_averaged_out():
    known, unseen = softmaxes(600), softmaxes(100, seed=1)
    noise = np.random.default_rng(2).lognormal(0, 0.05, len(known))
    model = calibrated(known, planted(known) * noise, l2_bytes=L2_BYTES)
    error = np.abs(model.predict(unseen) / planted(unseen) - 1)
    assert error.mean() < 0.025, "half of the noise"


def test_one_outlier_in_twenty_does_not_move_the_rates():
    known, unseen = softmaxes(600), softmaxes(100, seed=1)
    measured = planted(known)
    measured[::20] *= 5
    model = calibrated(known, measured, l2_bytes=L2_BYTES)
    assert np.abs(model.predict(unseen) / planted(unseen) - 1).mean() < 0.03


def test_nothing_is_faster_for_more_rows():
    known = softmaxes(400)
    noise = np.random.default_rng(3).lognormal(0, 0.2, len(known))
    model = calibrated(known, planted(known) * noise, l2_bytes=L2_BYTES)
    more = [
        Operation(operator="aten::softmax", operands=(Operand(shape=(rows, 900), dtype="float32"),))
        for rows in (1, 10, 100, 1000, 10000, 100000)
    ]
    assert np.all(np.diff(model.predict(more)) >= 0)


def test_a_kernel_that_was_not_measured_is_refused():
    known = softmaxes(100, longest=1000)
    model = calibrated(known, planted(known), l2_bytes=L2_BYTES)
    long = [Operation(operator="aten::softmax", operands=(Operand(shape=(4, 2000), dtype="float32"),))]
    with raises(EstimationError, "aten::softmax", 2000, FEWEST):
        model.predict(long)


def test_another_operator_is_refused():
    known = softmaxes(100, longest=1000)
    model = calibrated(known, planted(known), l2_bytes=L2_BYTES)
    other = [Operation(operator="aten::gelu", operands=(Operand(shape=(4, 20), dtype="float32"),))]
    with raises(EstimationError, "aten::gelu", "aten::softmax"):
        model.predict(other)


def test_a_few_measurements_are_no_calibration():
    known = softmaxes(FEWEST - 1, longest=1000)
    with raises(EstimationError, "aten::softmax", FEWEST - 1, FEWEST):
        calibrated(known, planted(known), l2_bytes=L2_BYTES)
