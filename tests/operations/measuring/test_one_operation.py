"""One operation, from its call to its record, under a clock of its own."""

from __future__ import annotations

import gc
import pickle

import pytest
import torch

from daceml.errors import MeasurementError
from daceml.operations.measuring import one_operation
from daceml.operations.measuring.calls import Call, Tensor, call_of
from daceml.operations.measuring.one_operation import Settings, measure
from tests.operations.measuring.ticking import Ticking
from tests.support.golden import raises

ATEN = torch.ops.aten


def test_a_duration_has_a_median_a_spread_and_deciles():
    call = call_of(ATEN.relu.default, (torch.randn(8),), {})
    took = measure(call, Settings(rounds=5), stopwatch=Ticking())
    assert took.samples == 5 and took.mode == "eager"
    assert took.p10_s == took.p90_s == took.median_s > 0
    assert took.mad_s == 0
    assert gc.isenabled()


def test_cold_chains_are_swept_before_and_take_buffers_in_turn(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(one_operation, "cache_bytes", lambda device: 1 << 16)
    watch = Ticking()
    call = call_of(ATEN.relu.default, (torch.randn(8),), {})
    took = measure(call, Settings(rounds=3, mode="cold"), stopwatch=watch)
    assert took.mode == "cold" and watch.before > 9


@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_both_directions(direction: str):
    call = call_of(ATEN.tanh.default, (torch.randn(64, 64),), {})
    took = measure(call, Settings(rounds=3), direction=direction, stopwatch=Ticking())  # pyright: ignore[reportArgumentType]
    assert took.median_s > 0


def test_an_operation_that_fails_says_with_which_shapes():
    odd = Call(
        operator="aten::mm",
        args=(
            Tensor(shape=(2, 3), strides=(3, 1), dtype="float32"),
            Tensor(shape=(4, 5), strides=(5, 1), dtype="float32"),
        ),
    )
    # torch says why
    with raises(MeasurementError, "aten::mm", "RuntimeError: mat1 and mat2 shapes", exact=False) as refusal:
        measure(odd)
    assert refusal.value.where == "aten::mm(float32[2, 3], float32[4, 5])"
    # a worker sends it to whoever began the campaign
    assert str(pickle.loads(pickle.dumps(refusal.value))) == str(refusal.value)


def test_a_processor_has_no_graphs():
    with raises(MeasurementError, "cpu", "CUDA", '"eager"', '"cold"'):
        Settings(mode="graph")


def test_a_backward_pass_is_never_cold():
    call = call_of(ATEN.tanh.default, (torch.randn(4),), {})
    with raises(MeasurementError, "backward", '"eager"', '"graph"'):
        measure(call, Settings(mode="cold"), direction="backward")
