"""Calls without their values, and what they are called in the database."""

from __future__ import annotations

import pickle

import torch

from daceml.errors import MeasurementError
from daceml.operations.measuring.calls import Call, Named, Tensor, call_of, filled, tensor_of
from tests.support.golden import raises

ATEN = torch.ops.aten


def test_a_call_is_its_shapes_strides_and_attributes():
    weight = torch.randn(5, 3)
    call = call_of(ATEN.addmm.default, (torch.randn(5), torch.randn(2, 3), weight.t()), {"beta": 2})
    assert call.operator == "aten::addmm"
    assert [one.strides for one in call.tensors] == [(1,), (3, 1), (1, 3)]
    operation = call.operation()
    assert [one.layout for one in operation.operands] == ["contiguous", "contiguous", (1, 3)]
    assert dict(operation.attributes) == {"beta": 2}
    assert pickle.loads(pickle.dumps(call)) == call


def test_what_is_left_at_its_default_is_no_attribute():
    x = torch.randn(4)
    spelt_out = call_of(ATEN.add.Tensor, (x, x), {"alpha": 1})
    assert dict(spelt_out.operation().attributes) == {"overload": "Tensor"}
    scaled = call_of(ATEN.add.Tensor, (x, 3), {"alpha": 2})
    assert dict(scaled.operation().attributes) == {"overload": "Tensor", "other": 3, "alpha": 2}


def test_layouts_have_names():
    image = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
    assert tensor_of(image).operand().layout == "channels_last"
    assert tensor_of(torch.randn(2, 1, 3)).operand().layout == "contiguous"
    assert tensor_of(torch.randn(3, 1).expand(3, 4)).operand().layout == (1, 0)


def test_bytes_are_those_that_are_held_and_those_that_are_touched():
    part = tensor_of(torch.randn(4, 100)[:, :10])
    assert part.bytes_held == 4 * 310 and part.bytes_touched == 4 * 40
    assert tensor_of(torch.randn(1).expand(1000)).bytes_touched == 4
    assert tensor_of(torch.randn(0, 3)).bytes_held == 0


def test_values_that_a_call_minds_are_ranges():
    assert (tensor_of(torch.tensor([3, 7, 5])).low, tensor_of(torch.tensor([3, 7, 5])).high) == (3, 7)
    assert tensor_of(torch.rand(4)).low == 0
    assert tensor_of(torch.tensor([-1.0])).low is None


def test_dtypes_and_devices_are_names():
    call = call_of(ATEN._to_copy.default, (torch.randn(2),), {"dtype": torch.float16})
    assert dict(call.kwargs) == {"dtype": Named(name="float16")}
    assert filled(Named(name="float16"), iter(()), "cpu") is torch.float16
    assert filled(Named(name="device"), iter(()), "cpu") == torch.device("cpu")
    assert call.operation().attributes["dtype"] == "float16"


def test_lists_of_tensors_say_how_many_and_which():
    x, places = torch.randn(4, 4), torch.tensor([0, 1])
    assert call_of(ATEN.cat.default, ([x, x, x],), {}).operation().attributes["tensors"] == 3
    picked = call_of(ATEN.index.Tensor, (x, [None, places]), {})
    assert picked.operation().attributes["indices"] == ("None", "tensor")


def test_an_operator_that_this_torch_does_not_have():
    # the version is of torch
    with raises(MeasurementError, "aten::admm", f"torch {torch.__version__}", exact=False):
        Call(operator="aten::admm", args=()).function()


def test_sparse_tensors_are_refused():
    with raises(MeasurementError, "layout torch.sparse_coo"):
        tensor_of(torch.eye(3).to_sparse())


def test_a_tensor_spans_its_last_element():
    assert Tensor(shape=(2, 3), strides=(10, 2), dtype="float32").span == 15
