"""What two operators compute from the same operands is computed once, and gradients are still eager's."""

from __future__ import annotations

import pytest
import torch

from daceml.onnx_ops.schema.node import ONNXNode
from daceml.onnx_ops.schema.random_operators import draws
from daceml.transformations.coarse.common_subexpressions import merge_common_subexpressions
from tests.support.golden import golden
from tests.support.imported_networks import imported, operators, values
from tests.transformations.coarse.lifted import Of, equals_eager


def test_chains_become_one():
    text = (
        "g (float[3, 1] X, float[1, 4] Z) => (float[3, 4] Y) "
        "{ A = Exp (X) B = Exp (X) C = Add (A, Z) D = Add (Z, B) E = Neg (C) F = Neg (D) Y = Mul (E, F) }"
    )
    network = imported(text)
    assert merge_common_subexpressions(network) == 3
    network.sdfg.validate()
    assert operators(network) == ["Add", "Exp", "Mul", "Neg"]
    assert network.passes[-1].applied == {"equal operators": 3}
    x, z = torch.randn(3, 1), torch.randn(1, 4)
    torch.testing.assert_close(values(network, x, z)[0], (x.exp() + z) ** 2)


@pytest.mark.parametrize("results", ["float[4] Y, float[4] Z", "float[4] Z, float[4] Y"])
def test_results_stay_results(results: str):
    network = imported(f"g (float[4] X) => ({results}) {{ A = Exp (X) Y = Exp (X) Z = Exp (X) B = Neg (A) }}")
    assert merge_common_subexpressions(network) == 2
    network.sdfg.validate()
    assert operators(network).count("Exp") == 1
    x = torch.randn(4)
    for found in values(network, x):
        torch.testing.assert_close(found, x.exp())


def test_constants_are_equal_by_value_and_type():
    head = "g (float[4] X) => (float[4] Y) <float a = {2}, float b = {2}, float[1] c = {2}, float d = {-0.0}"
    text = f"{head}, float e = {{0}}> {{ P = Mul (X, a) Q = Mul (b, X) R = Mul (X, c) S = Max (P, Q, R) "
    network = imported(f"{text} T = Div (S, d) U = Div (S, e) Y = Max (T, U) }}")
    # a scalar and a vector of one element give the same, and are not looked into
    assert merge_common_subexpressions(network) == 1
    assert operators(network) == ["Div", "Div", "Max", "Max", "Mul", "Mul"]


def test_different_attributes_or_operands_are_different():
    text = (
        "g (float[3, 3] X, float[3, 3] Z) => (float[3, 3] Y) { A = Softmax <axis = 0> (X) "
        "B = Softmax <axis = 1> (X) C = Sub (X, Z) D = Sub (Z, X) Y = Sum (A, B, C, D) }"
    )
    assert merge_common_subexpressions(imported(text)) == 0


def test_views_stay_apart_and_what_reads_equal_views_is_equal():
    text = (
        "g (float[2, 3] X) => (float[6] Y, float[6] Z) <int64[1] s = {6}> "
        "{ A = Reshape (X, s) B = Reshape (X, s) C = Exp (A) D = Exp (B) Y = Neg (C) E = Sin (B) "
        "Z = Mul (D, E) }"
    )
    network = imported(text)
    assert merge_common_subexpressions(network) == 1
    network.sdfg.validate()
    assert operators(network) == ["Exp", "Mul", "Neg", "Reshape", "Reshape", "Sin"]
    x = torch.randn(2, 3)
    y, z = values(network, x)
    torch.testing.assert_close(y, -x.exp().reshape(6))
    torch.testing.assert_close(z, (x.exp() * x.sin()).reshape(6))


def test_several_results():
    text = (
        "g (float[5, 2] X) => (float[5, 2] Y) <int64[2] s = {2, 3}, int64[2] t = {2, 3}> "
        "{ A, B = Split <axis = 0> (X, s) C, D = Split <axis = 0> (X, t) Y = Concat <axis = 0> (A, D) }"
    )
    network = imported(text)
    # C is an array that nobody reads
    assert merge_common_subexpressions(network) == 1
    network.sdfg.validate()
    assert operators(network) == ["Concat", "Split"]
    x = torch.randn(5, 2)
    torch.testing.assert_close(values(network, x)[0], x)


def test_random_numbers_are_drawn_twice():
    text = (
        "g (float[3] X) => (float[3] Y) { A = RandomNormalLike (X) B = RandomNormalLike (X) Y = Sub (A, B) }"
    )
    network = imported(text)
    assert merge_common_subexpressions(network) == 0
    assert [r.reason for r in network.passes[-1].refused] == [golden()]
    assert "random" in network.passes[-1].refused[0].reason
    drawing = [n for n in network.state.nodes() if isinstance(n, ONNXNode) and draws(n)]
    assert len(drawing) == 2


def test_gradients_of_both_are_added():
    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.sin(x * y).sum(0) * torch.exp(y * x).mean(0) + (x - x.mean()) ** 2 * (x - x.mean())

    inputs = torch.randn(3, 1, 5, dtype=torch.float64), torch.randn(4, 1, dtype=torch.float64)
    equals_eager(Of(function), *inputs)


def test_dropout_draws_two_masks():
    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.dropout(x, 0.5) - torch.nn.functional.dropout(x, 0.5)

    import daceml

    torch.manual_seed(0)
    found = daceml.compile(Of(function))(torch.ones(1000))
    assert found.abs().max() == 2
