"""The campaign over the standard's gradients finds what is wrong, and says what it cannot measure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest

from benchmarks.conformance.cases import Case
from benchmarks.standard_gradients.differences import first_difference
from benchmarks.standard_gradients.program import differentiated, widened


def case(text: str, *inputs: np.ndarray, opset: int = 20) -> Case:
    model = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["" : {opset}]> {text}')
    return Case(
        kind="node", name="case", operator="", expanded=False, model=model, data=[(inputs, ())],
        rtol=0, atol=0, statistical=False,
    )  # fmt: skip


def claimed(value: Callable[[np.ndarray], np.ndarray], slope: Callable[[np.ndarray], np.ndarray]) -> Any:
    """A program of one input, as if it had been compiled, whose gradient is what somebody says."""

    def call(inputs: Sequence[np.ndarray], cotangents: Sequence[np.ndarray]) -> Any:
        return [value(inputs[0])], {0: cotangents[0] * slope(inputs[0])}

    class Claimed(SimpleNamespace):
        def __call__(self, *arguments: Any) -> Any:
            return call(*arguments)

    return Claimed(sources=(0,), zeros=(np.zeros(4),), wanted={0: 1}, results=1)


X = np.array([0.5, -1.0, 2.0, 0.25])


def test_a_derivative_agrees_with_differences():
    assert first_difference(claimed(np.sin, np.cos), [X]) == ""


def test_a_wrong_derivative_is_named():
    problem = first_difference(claimed(np.sin, np.sin), [X])
    assert problem is not None and "input 0: " in problem and "differences say" in problem


def test_a_derivative_that_is_wrong_in_one_element_is_named():
    wrong = first_difference(claimed(np.exp, lambda x: np.exp(x) * np.array([1, 1, 1.01, 1])), [X])
    assert wrong


def test_where_nothing_is_smooth_nothing_is_claimed():
    rough = np.random.default_rng(0)
    assert first_difference(claimed(lambda x: rough.normal(size=x.shape), np.zeros_like), [X]) is None


def test_an_operator_of_two_inputs_is_compiled_with_both_gradients():
    a, b = np.full((2, 3), 0.5, np.float32), np.full((3,), 2, np.float32)
    made = widened(case("g (float[2,3] a, float[3] b) => (float[2,3] c) { c = Div(a, b) }", a, b))
    compiled = differentiated(made)
    assert compiled is not None
    _, gradients = compiled(made.data[0][0], [np.ones((2, 3))])
    np.testing.assert_allclose(gradients[0], np.full((2, 3), 0.5))
    np.testing.assert_allclose(gradients[1], np.full(3, -0.25))
    assert first_difference(compiled, made.data[0][0]) == ""


def test_a_scalar_result_has_a_cotangent_of_no_dimension():
    made = widened(
        case("g (float[3] a) => (float c) { c = ReduceSum<keepdims = 0>(a) }", np.ones(3, np.float32))
    )
    compiled = differentiated(made)
    assert compiled is not None and compiled.zeros[0].shape == ()
    assert first_difference(compiled, made.data[0][0]) == ""


def test_comparisons_have_no_derivative():
    made = case("g (float[3] a) => (bool[3] c) { c = Greater(a, a) }", np.ones(3, np.float32))
    assert differentiated(widened(made)) is None


@pytest.mark.parametrize(
    ("text", "types"),
    [
        ("g (float[3] a) => (float[3] c) { c = Exp(a) }", [11, 11]),
        ("g (float[1,1,2,2] a, float[4] s) => (float[1,1,4,4] c) { c = Resize(a, , s) }", [11, 1, 11]),
        ("g (float[3] a) => (float[3] c) { c = Cast<to = 1>(a) }", [11, 1]),
    ],
    ids=["takes float64", "sizes stay", "says its type"],
)
def test_what_takes_float64_gets_it(text: str, types: list[int]):
    count = len(onnx.parser.parse_graph(text).input)
    made = widened(case(text, *[np.ones(1, np.float32)] * count))
    values = [*made.model.graph.input, *made.model.graph.output]
    assert [value.type.tensor_type.elem_type for value in values] == types
