"""How far a step leaves its operands, told from steps whose sizes are known."""

from __future__ import annotations

import torch

from daceml.operations.measuring.calls import Call, Tensor
from daceml.operations.measuring.placement import Placed, placed_calls
from daceml.operations.measuring.stopwatches import WallClock

KIB = 1 << 10


def vector(bytes_held: int) -> Tensor:
    return Tensor(shape=(bytes_held // 4,), strides=(1,), dtype="float32")


def test_a_weight_is_a_step_away_and_what_was_just_written_is_near():
    weights = [torch.randn(256, 256) for _ in range(8)]  # 256 KiB each
    x = torch.randn(16, 256)

    def step() -> torch.Tensor:
        y = x
        for weight in weights:
            y = torch.mm(y, weight)
        return y

    found = [one for one in placed_calls(step) if one.call.operator == "aten::mm"]
    assert sum(one.count for one in found) == 8
    for one in found:
        assert one.distances[1] >= 7 * 256 * KIB
        assert one.result_bytes == 16 * KIB
        assert one.operator_distance <= 512 * KIB, "the operation before was one of the same operator"
    assert sum(one.count for one in found if one.distances[0] == 0) >= 7


def test_views_touch_nothing():
    weight = torch.randn(64, 64)
    (view,) = placed_calls(weight.t)
    assert (view.distances, view.result_distance) == ((0,), 0)


def test_as_many_buffers_turn_as_bytes_lie_between():
    one = Placed(call=_call(vector(64 * KIB), vector(64 * KIB)), distances=(512 * KIB, 0), result_distance=0)
    assert one.buffers() == (8, 1) and one.results() == 1
    both = Placed(
        call=_call(vector(64 * KIB), vector(64 * KIB)),
        distances=(512 * KIB, 0),
        result_distance=256 * KIB,
        result_bytes=64 * KIB,
    )
    assert both.buffers() == (4, 1) and both.results() == 2


def test_an_operator_whose_code_has_gone_is_swept_before_and_the_sweep_subtracted():
    call = _call(vector(KIB), vector(KIB))
    near = Placed(call=call, distances=(0, 0), result_distance=0, operator_distance=32 * KIB)
    far = Placed(call=call, distances=(0, 0), result_distance=0, operator_distance=128 * KIB)
    clock = WallClock(clock_s=lambda: 0.0)
    assert near.chains(clock, cache_bytes=64 * KIB)[1] is None
    both, alone = far.chains(clock, cache_bytes=64 * KIB)
    assert alone is not None
    assert both(2) == alone(2) == 0.0


def _call(*tensors: Tensor) -> Call:
    return Call(operator="aten::add.Tensor", args=tensors)
