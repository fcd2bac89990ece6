"""ONNX models called like functions."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

from daceml.compiler.keys.program_key import model_key
from daceml.errors import BackwardUnavailableError, CallError, ConfigurationError, OnnxFileError
from daceml.module.onnx_model import ONNXModel
from tests.support.golden import raises

WEIGHT = np.arange(12, dtype=np.float32).reshape(4, 3) - 5


def linear(*, bias: float = 1.0) -> onnx.ModelProto:
    """y = relu(x W + bias), total = sum(y); x: [N, 4]."""
    nodes = [
        helper.make_node("MatMul", ["x", "weight"], ["product"]),
        helper.make_node("Add", ["product", "bias"], ["shifted"]),
        helper.make_node("Relu", ["shifted"], ["y"]),
        helper.make_node("ReduceSum", ["y"], ["total"], keepdims=0),
    ]
    graph = helper.make_graph(
        nodes,
        "linear",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 4])],
        [
            helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 3]),
            helper.make_tensor_value_info("total", TensorProto.FLOAT, []),
        ],
        [
            numpy_helper.from_array(WEIGHT, "weight"),
            numpy_helper.from_array(np.array([bias], dtype=np.float32), "bias"),
        ],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


@pytest.fixture(scope="module")
def model() -> ONNXModel:
    return ONNXModel(linear())


@pytest.mark.parametrize("rows", [1, 5])
def test_numpy_in_numpy_out_for_any_size_of_a_named_dimension(model: ONNXModel, rows: int):
    x = np.random.default_rng(0).standard_normal((rows, 4)).astype(np.float32)
    y, total = model(x)
    expected = np.maximum(x @ WEIGHT + 1, 0)
    assert isinstance(y, np.ndarray)
    # one contraction of four products, then a sum: a few roundings
    np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(total, expected.sum(), rtol=1e-5)
    assert total.shape == ()


def test_tensors_in_tensors_out_by_name(model: ONNXModel):
    y, _ = model(x=torch.ones(2, 4))
    assert isinstance(y, torch.Tensor)
    assert torch.equal(y, torch.relu(torch.ones(2, 4) @ torch.from_numpy(WEIGHT) + 1))


class Foreign:
    """An array of a library that keeps the array-API standard."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor

    def __dlpack__(self, **options: object) -> object:
        return self.tensor.__dlpack__()

    def __dlpack_device__(self) -> object:
        return self.tensor.__dlpack_device__()

    def __array_namespace__(self, *, api_version: str | None = None) -> object:
        return SimpleNamespace(from_dlpack=lambda other: Foreign(torch.from_dlpack(other)))


def test_arrays_of_other_libraries_come_back_as_they_are(model: ONNXModel):
    y, total = model(Foreign(torch.ones(2, 4)))
    assert isinstance(y, Foreign) and isinstance(total, Foreign)
    assert torch.equal(y.tensor, model(torch.ones(2, 4))[0]) and total.tensor.shape == ()


def test_inputs_are_read_and_results_given_without_a_copy(model: ONNXModel):
    tensor = torch.ones(2, 4)
    for given in (tensor, tensor.numpy(), Foreign(tensor)):
        (taken,), convert = model.prepare((given,), {})
        assert taken.data_ptr() == tensor.data_ptr()
        made = tensor if convert is None else convert(taken)
        assert (made.tensor if isinstance(made, Foreign) else torch.as_tensor(made)).data_ptr() == (
            tensor.data_ptr()
        )


def test_one_tensor_among_the_inputs_makes_tensors_of_results():
    nodes = [helper.make_node("Add", ["a", "b"], ["y"])]
    info = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in "aby"]
    graph = helper.make_graph(nodes, "add", info[:2], info[2:])
    add = ONNXModel(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9))
    tensor, array = torch.ones(2), np.ones(2, dtype=np.float32)
    kinds = [type(add(*pair)) for pair in ((tensor, array), (array, Foreign(tensor)), (array, array))]
    assert kinds == [torch.Tensor, Foreign, np.ndarray]
    assert type(add(Foreign(tensor), tensor)) is torch.Tensor
    assert torch.equal(add(Foreign(tensor), array).tensor, torch.full((2,), 2.0))


def test_a_single_output_comes_alone():
    single = linear()
    del single.graph.output[1]
    y = ONNXModel(single, dims={"N": 2})(torch.ones(2, 4))
    assert isinstance(y, torch.Tensor) and y.shape == (2, 3)


def test_given_dimensions_are_fixed():
    fixed = ONNXModel(linear(), dims={"N": 2})
    with raises(CallError, "(3, 4)", "float32 (2, 4)", "dimension 0"):
        fixed(torch.ones(3, 4))


def test_a_file_is_named_in_messages(tmp_path: Path):
    onnx.save(linear(), tmp_path / "net.onnx")
    model = ONNXModel(tmp_path / "net.onnx")
    assert isinstance(model.model, onnx.ModelProto)
    with raises(CallError, "net.onnx", "'z'"):
        model(z=torch.ones(2, 4))


def test_the_sdfg_is_there_to_look_at(model: ONNXModel):
    import dace

    assert isinstance(model.sdfg, dace.SDFG)
    model.sdfg.validate()


def test_gradients_are_refused(model: ONNXModel):
    x = torch.ones(2, 4, requires_grad=True)
    with raises(BackwardUnavailableError, "linear", "torch.no_grad()", ".detach()"):
        model(x)
    with torch.no_grad():
        assert not model(x)[0].requires_grad


def test_a_second_model_is_loaded_from_the_cache(model: ONNXModel):
    model(torch.ones(2, 4))
    again = ONNXModel(linear())
    again(torch.ones(2, 4))
    assert set(again.stages_s) == {"key", "bind"}


def test_the_key_depends_on_data_nodes_and_dims():
    keys = {model_key(linear(), {}), model_key(linear(bias=2.0), {}), model_key(linear(), {"N": 2})}
    other = linear()
    other.graph.node[2].op_type = "Sigmoid"
    assert len({*keys, model_key(other, {})}) == 4
    assert model_key(linear(), {}) in keys


def test_what_is_no_model_is_refused():
    with raises(ConfigurationError, "ONNXModel", "onnx.ModelProto", "int"):
        ONNXModel(3)  # pyright: ignore[reportArgumentType]
    with raises(OnnxFileError, "missing.onnx"):
        ONNXModel("missing.onnx")


def test_an_element_whose_place_is_rounded():
    # fused into the loop that reads: the place is computed in its brackets
    node = helper.make_node("Resize", ["x", "", "scales"], ["y"], mode="nearest")
    graph = helper.make_graph(
        [node],
        "resize",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 1, 2, 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 1, 1, 2])],
        [numpy_helper.from_array(np.array([1, 1, 0.6, 0.6], np.float32), "scales")],
    )
    resize = ONNXModel(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9))
    assert resize(torch.arange(1.0, 9).reshape(1, 1, 2, 4)).tolist() == [[[[1, 3]]]]
