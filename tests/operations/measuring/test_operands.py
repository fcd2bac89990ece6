from __future__ import annotations

import torch

from daceml.errors import MeasurementError
from daceml.operations.measuring.calls import Tensor, tensor_of
from daceml.operations.measuring.operands import check_room, draw
from tests.support.golden import raises


def test_operands_have_the_strides_and_ranges_that_are_wanted():
    wanted = [
        tensor_of(torch.randn(3, 4).t()),
        tensor_of(torch.tensor([2, 9, 5])),
        tensor_of(torch.rand(5)),
        tensor_of(torch.tensor([True, False])),
        tensor_of(torch.randn(2).to(torch.bfloat16).expand(3, 2)),
    ]
    ((matrix, places, positive, mask, wide),) = draw(wanted)
    assert matrix.shape == (4, 3) and matrix.stride() == (1, 4) and matrix.std() > 0.1
    assert places.min() >= 2 and places.max() <= 9 and places.dtype == torch.int64
    assert (positive > 0).all()
    assert mask.dtype == torch.bool
    assert wide.dtype == torch.bfloat16 and wide.stride() == (0, 1)


def test_sets_share_no_memory_and_are_the_same_every_time():
    wanted = [Tensor(shape=(8,), strides=(1,), dtype="float32")]
    (a,), (b,) = draw(wanted, sets=2)
    assert a.data_ptr() != b.data_ptr() and not torch.equal(a, b)
    assert torch.equal(a, draw(wanted)[0][0])


def test_operands_that_would_fill_the_memory_are_refused():
    check_room(1 << 30, 4 << 30)
    with raises(MeasurementError, "operands", "2.0 GB", "4.0 GB", "quarter"):
        check_room(2_000_000_000, 4_000_000_000)
