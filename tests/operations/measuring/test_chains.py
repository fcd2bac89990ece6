"""Copies of operations, counted by a clock that goes on by one at each of them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from daceml.errors import MeasurementError
from daceml.operations.measuring.calls import call_of
from daceml.operations.measuring.chains import backward_chain, forward_chain
from daceml.operations.measuring.stopwatches import WallClock
from tests.support.golden import raises

ATEN = torch.ops.aten


class Watched(TorchDispatchMode):
    """Calls as they come; the clock is their number."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name, self.calls = name, list[tuple[Any, ...]]()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.name() == self.name:
            self.calls.append(args)
        return func(*args, **(kwargs or {}))

    @property
    def clock(self) -> WallClock:
        return WallClock(clock_s=lambda: float(len(self.calls)))


def test_a_result_that_can_be_the_next_operand_is():
    call = call_of(ATEN.relu.default, (torch.randn(8),), {})
    with Watched("aten::relu") as watched:
        made = forward_chain(call, watched.clock)
        watched.calls.clear()
        assert made.timed(5) == 5
    assert made.chained
    read = [x.data_ptr() for (x,) in watched.calls]
    assert read[0] != read[1], "the second copy reads what the first has written"


@pytest.mark.parametrize(
    ("operator", "operands"),
    [
        (ATEN.mm.default, (torch.randn(64, 64), torch.randn(64, 64))),
        (ATEN.gelu.default, (torch.randn(64),)),
        (ATEN.sum.default, (torch.randn(64),)),
        (ATEN.add_.Tensor, (torch.randn(64), torch.randn(64))),
        (ATEN.t.default, (torch.randn(3, 3),)),
    ],
    ids=["grows", "dies down", "has another shape", "writes over its operand", "is a view"],
)
def test_other_copies_are_held_apart_by_order(operator: Any, operands: tuple[Any, ...]):
    call = call_of(operator, operands, {})
    with Watched(operator.name()) as watched:
        made = forward_chain(call, watched.clock)
        watched.calls.clear()
        assert made.timed(4) == 4
    assert not made.chained
    assert len({args[0].data_ptr() for args in watched.calls}) == 1


def test_buffers_are_taken_in_turn_and_the_next_chain_goes_on():
    call = call_of(ATEN.add.Tensor, (torch.randn(8), torch.randn(8)), {})
    with Watched("aten::add.Tensor") as watched:
        made = forward_chain(call, watched.clock, buffers=(3, 1))
        made.timed(2)
        made.timed(4)
    first = [args[0].data_ptr() for args in watched.calls]
    assert first[:3] == first[3:] and len(set(first)) == 3
    assert len({args[1].data_ptr() for args in watched.calls}) == 1


def test_what_lies_between_copies_can_be_subtracted():
    call = call_of(ATEN.sin.default, (torch.randn(8),), {})
    between: list[int] = []
    with Watched("aten::sin") as watched:
        for alone in (False, True):
            made = forward_chain(
                call,
                watched.clock,
                buffers=(2,),
                between=lambda tensors: between.append(len(tensors)),
                only_between=alone,
            )
            assert made.timed(3) == (0 if alone else 3)
    assert between == [1] * 6


def test_a_backward_chain_runs_the_gradient_of_every_copy_and_no_sum_of_gradients():
    call = call_of(ATEN.mm.default, (torch.randn(3, 4), torch.randn(4, 5)), {})
    with Watched("aten::mm") as watched, Watched("aten::add.Tensor") as added:
        made = backward_chain(call, watched.clock, most=4)
        watched.calls.clear()
        assert made.timed(3) == 6, "of both operands"
        assert made.timed(3) == 6, "its graph is kept"
    assert added.calls == []


def test_what_has_no_gradient_is_refused():
    whole = call_of(ATEN.argmax.default, (torch.randn(4),), {})
    with raises(MeasurementError, "aten::argmax", "backward", "result"):
        backward_chain(whole, WallClock(), most=4)
    over = call_of(ATEN.relu_.default, (torch.randn(4),), {})
    with raises(MeasurementError, "aten::relu_", "backward", "underscore"):
        backward_chain(over, WallClock(), most=4)


def test_shapes_that_follow_from_data_are_refused_and_indices_are_not():
    x = torch.randn(4, 4)
    for call in (
        call_of(ATEN.nonzero.default, (x,), {}),
        call_of(ATEN.index.Tensor, (x, [x > 0]), {}),
        call_of(ATEN._local_scalar_dense.default, (x.sum(),), {}),
    ):
        with raises(MeasurementError, call.operator, "values", "daceml.profile"):
            forward_chain(call, WallClock())
    rows = call_of(ATEN.index.Tensor, (x, [torch.tensor([0, 3])]), {})
    assert forward_chain(rows, WallClock(clock_s=lambda: 0.0)).timed(2) == 0.0
