"""ONNX models inside DaCe programs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import dace
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import daceml
from daceml.errors import DacemlError
from tests.support.golden import raises
from tests.support.quick_programs import quick_programs

pytestmark = [
    # Of dace's own nodes.
    pytest.mark.filterwarnings("ignore:Using sets for connectors"),
    pytest.mark.filterwarnings("ignore:Variable-length array"),
]
N = dace.symbol("N")


@pytest.fixture(autouse=True, scope="module")
def quick_builds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with quick_programs(tmp_path_factory.mktemp("programs")):
        yield


WEIGHT = np.random.default_rng(0).normal(size=(40, 30))  # more than a constant may have: it stays outside
BIAS = np.arange(30.0)


def linear() -> onnx.ModelProto:
    """`y = relu(x @ weight + bias)` for any number of rows."""
    graph = helper.make_graph(
        [
            helper.make_node("Gemm", ["x", "weight", "bias"], ["z"]),
            helper.make_node("Relu", ["z"], ["y"]),
        ],
        "linear",
        [helper.make_tensor_value_info("x", TensorProto.DOUBLE, ["batch", 40])],
        [helper.make_tensor_value_info("y", TensorProto.DOUBLE, ["batch", 30])],
        initializer=[numpy_helper.from_array(WEIGHT, "weight"), numpy_helper.from_array(BIAS, "bias")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


def test_a_model_between_numpy_s_steps_for_any_size_and_its_gradient():
    model = daceml.ONNXModel(linear())

    @dace.program
    def around(x: dace.float64[N, 40]):
        x.requires_grad_()
        y = model(np.sin(x))
        loss = np.sum(y)
        loss.backward()
        return y, x.grad

    for rows in (2, 5):
        x = np.random.default_rng(rows).normal(size=(rows, 40))
        z = np.sin(x) @ WEIGHT + BIAS
        y, gradient = around(x)
        np.testing.assert_allclose(y, np.maximum(z, 0), rtol=1e-12)
        np.testing.assert_allclose(gradient, ((z > 0) @ WEIGHT.T) * np.cos(x), rtol=1e-12, atol=1e-13)


def of_other_elements(model: Callable[..., Any]) -> Any:
    def called(x: dace.float32[2, 40]):
        return model(x)

    return called


def of_another_shape(model: Callable[..., Any]) -> Any:
    def called(x: dace.float64[2, 41]):
        return model(x)

    return called


def of_nothing(model: Callable[..., Any]) -> Any:
    def called(x: dace.float64[2, 40]):
        return model()

    return called


def of_too_much(model: Callable[..., Any]) -> Any:
    def called(x: dace.float64[2, 40]):
        return model(x, x)

    return called


@pytest.mark.parametrize(
    ("make", "facts"),
    [
        (of_other_elements, ["x", "float64"]),
        (of_another_shape, ["x", "40"]),
        (of_nothing, ["x is missing"]),
        (of_too_much, ["2 were passed"]),
    ],
)
def test_arguments_that_the_model_does_not_take(make: Callable[..., Any], facts: list[str]):
    with raises(DacemlError, *facts):
        dace.program(make(daceml.ONNXModel(linear()))).to_sdfg()
