"""ONNX operators as functions of DaCe programs, against numpy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import dace
import numpy as np
import pytest

from daceml.errors import InvalidNodeError, NoImplementationError
from daceml.onnx_ops import functions as onnx
from tests.support.golden import raises
from tests.support.quick_programs import quick_programs

# Of dace's own nodes.
pytestmark = [
    pytest.mark.filterwarnings("ignore:Using sets for connectors"),
    pytest.mark.filterwarnings("ignore:Variable-length array"),
]
N = dace.symbol("N")


@pytest.fixture(autouse=True, scope="module")
def quick_builds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with quick_programs(tmp_path_factory.mktemp("programs")):
        yield


@dace.program
def into_an_array(a: dace.float64[5, 4], b: dace.float64[4, 3]):
    y = np.empty([5, 3], dtype=np.float64)
    onnx.MatMul(A=a, B=b, Y=y)
    return y * 2


@dace.program
def returned(x: dace.float64[N, 6], scale: dace.float64[6]):
    y = onnx.LayerNormalization(x, scale, epsilon=1e-3)
    z = onnx.ReduceSum(onnx.Add(y, 2.0), [1], keepdims=0)
    return onnx.Unsqueeze(y, [1]), z


@dace.program
def of_an_older_version(x: dace.float64[2, 3]):
    return onnx.ReduceSum_11(x, axes=[0], keepdims=1)


@dace.program
def of_many(a: dace.float64[3], b: dace.float64[3], c: dace.float64[3]):
    return onnx.Max(a, b, c)


@dace.program
def of_numbers(table: dace.float64[4, 3], row: dace.int64):
    return onnx.Gather(table, row, axis=0)


def test_a_result_goes_into_the_array_that_is_passed():
    a, b = np.random.default_rng(0).normal(size=(5, 4)), np.random.default_rng(1).normal(size=(4, 3))
    np.testing.assert_allclose(into_an_array(a, b), 2 * (a @ b), rtol=1e-13)


def test_a_result_that_is_not_passed_is_returned_with_the_shape_that_onnx_infers():
    for rows in (2, 5):
        x, scale = np.random.default_rng(0).normal(size=(rows, 6)), np.arange(6.0)
        normal = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-3) * scale
        y, z = returned(x, scale)
        np.testing.assert_allclose(y, normal[:, None], rtol=1e-12, atol=1e-13)
        np.testing.assert_allclose(z, (normal + 2).sum(1), rtol=1e-12)


def test_a_name_may_carry_an_opset():
    x = np.arange(6.0).reshape(2, 3).copy()
    np.testing.assert_array_equal(of_an_older_version(x), x.sum(0, keepdims=True))


def test_operands_that_are_left_over_belong_to_a_variadic_one():
    a, b, c = np.random.default_rng(0).normal(size=(3, 3))
    np.testing.assert_array_equal(of_many(a.copy(), b.copy(), c.copy()), np.maximum(np.maximum(a, b), c))


def test_a_scalar_of_dace_is_a_tensor_of_rank_0():
    table = np.arange(12.0).reshape(4, 3).copy()
    np.testing.assert_array_equal(of_numbers(table, 2), table[2])


def test_a_node_in_an_sdfg_by_hand_loses_operands_that_its_loops_do_not_read():
    sdfg = dace.SDFG("reshaped")
    sdfg.add_array("x", [2, 6], dace.float64)
    sdfg.add_array("shape", [2], dace.int64)
    sdfg.add_array("y", [3, 4], dace.float64)
    state = sdfg.add_state()
    node = onnx.Reshape(inputs=["data", "shape"], outputs=["reshaped"])
    state.add_node(node)
    for array, connector in (("x", "data"), ("shape", "shape")):
        state.add_edge(state.add_read(array), None, node, connector, sdfg.make_array_memlet(array))
    state.add_edge(node, "reshaped", state.add_write("y"), None, sdfg.make_array_memlet("y"))
    sdfg.expand_library_nodes()
    assert "shape" not in {n.data for n in state.data_nodes()}
    sdfg.remove_data("shape")
    x, y = np.arange(12.0).reshape(2, 6).copy(), np.zeros((3, 4))
    sdfg(x=x, y=y)
    np.testing.assert_array_equal(y, x.reshape(3, 4))


def too_many(a: dace.float64[3]):
    return onnx.Abs(a, a)


def given_twice(a: dace.float64[3]):
    return onnx.Abs(a, X=a)


def without_such_an_attribute(a: dace.float64[3]):
    return onnx.Abs(a, axis=1)


def of_unknown_shape(a: dace.float64[3]):
    return onnx.NonZero(a)


def of_a_text(a: dace.float64[3]):
    return onnx.Add(a, "three")


@pytest.mark.parametrize(
    ("program", "facts"),
    [
        (too_many, ["Abs", "1 operands, not 2"]),
        (given_twice, ["Abs", "X"]),
        (without_such_an_attribute, ["Abs", "'axis'"]),
        (of_unknown_shape, ["NonZero", "Y=array"]),
        (of_a_text, ["Add", "three"]),
    ],
)
def test_a_call_that_does_not_fit_is_refused(program: Callable[..., Any], facts: list[str]):
    with raises(InvalidNodeError, *facts):
        dace.program(program).to_sdfg()


def test_an_operator_without_loops_is_refused_where_it_is_expanded():
    @dace.program
    def drawn(y: dace.float32[3]):
        onnx.RandomNormal(output=y, shape=[3])

    with raises(NoImplementationError, "RandomNormal", exact=False):
        drawn.to_sdfg().expand_library_nodes()
