"""Rewrites apply where their pattern stands, keep values, and say why they leave a place alone."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch

from daceml.errors import DacemlError, UnsupportedProgramError
from daceml.onnx_ops.schema.node import ONNXNode
from daceml.sdfg.network import Network
from daceml.transformations.rewriting.pattern import Anything
from daceml.transformations.rewriting.rewrite import Rewrite
from tests.support.golden import golden, raises
from tests.support.imported_networks import imported, operators, values
from tests.support.sampling import sampled


def same_values(text: str, rewrite: Rewrite, *inputs: torch.Tensor) -> Network:
    """A network after a rewrite gives what it gave before."""
    network = imported(text)
    rewrite(network)
    network.sdfg.validate()
    found = operators(network)
    for ours, theirs in zip(values(network, *inputs), values(imported(text), *inputs), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-6)
    again = imported(text)
    rewrite(again)
    assert operators(again) == found
    return again


class TransposeIntoGemm(Rewrite):
    """Gemm(Transpose(a), b) -> Gemm(a, b, transA)"""

    def pattern(self, op: Any, a: Any, b: Any) -> Any:
        return op.Gemm(op.Transpose(a, name="transpose"), b, name="gemm")

    def check(self, a: Any, b: Any) -> str | None:
        return None if a.shape[0] != 5 else "five rows are left alone"

    def rewrite(self, op: Any, a: Any, b: Any, gemm: Any) -> Any:
        return op.Gemm(a, b, transA=1 - gemm.transA, transB=gemm.transB, alpha=gemm.alpha)


GEMM = (
    "g (float[{n}, 3] A, float[{n}, 4] B) => (float[3, 4] Y) "
    "{{ T = Transpose (A) Y = Gemm <alpha = 0.5> (T, B) }}"
)


def test_a_rewrite_applies_where_its_pattern_stands():
    network = same_values(GEMM.format(n=7), TransposeIntoGemm(), torch.randn(7, 3), torch.randn(7, 4))
    assert operators(network) == ["Gemm"]
    (record,) = network.passes
    assert (record.name, record.applied, record.refused) == (
        "TransposeIntoGemm",
        {"TransposeIntoGemm": 1},
        (),
    )


def test_a_refusal_has_its_reason_and_its_size():
    network = imported(GEMM.format(n=5))
    record = TransposeIntoGemm()(network)
    assert operators(network) == ["Gemm", "Transpose"]
    (refusal,) = record.refused
    assert refusal.reason == "five rows are left alone"
    assert refusal.size_bytes == 3 * 4 * 4


def test_what_others_read_is_not_taken_away():
    text = (
        "g (float[7, 3] A, float[7, 4] B) => (float[3, 4] Y, float[3, 7] Z) "
        "{ T = Transpose (A) Y = Gemm (T, B) Z = Neg (T) }"
    )
    (read,) = TransposeIntoGemm()(imported(text)).refused
    text = (
        "g (float[7, 3] A, float[7, 4] B) => (float[3, 4] Y, float[3, 7] T) "
        "{ T = Transpose (A) Y = Gemm (T, B) }"
    )
    (result,) = TransposeIntoGemm()(imported(text)).refused
    assert [read.reason, result.reason] == [golden(), golden()]
    assert "Transpose" in read.reason and "Transpose" in result.reason and "result" in result.reason

    class Shared(TransposeIntoGemm):
        shared_inside = True

    network = same_values(text, Shared(), torch.randn(7, 3), torch.randn(7, 4))
    assert operators(network) == ["Gemm", "Transpose"]


class Mish(Rewrite):
    """x tanh(log(1 + exp x)) -> Mish(x), in any order of its operands"""

    def pattern(self, op: Any, x: Any) -> Any:
        return op.Mul(x, op.Tanh(op.Log(op.Add(op.Exp(x), 1.0))))

    def rewrite(self, op: Any, x: Any) -> Any:
        return op.Mish(x)


@pytest.mark.parametrize(
    ("sum", "product"),
    sampled(
        itertools.product(["E, one", "one, E"], ["X, T", "T, X"]), ("E, one", "T, X"), ("one, E", "X, T")
    ),
)
def test_commutative_operators_match_in_either_order(sum: str, product: str):
    text = (
        "g (float[3, 4] X) => (float[3, 4] Y) <float one = {1}> "
        f"{{ E = Exp (X) S = Add ({sum}) L = Log (S) T = Tanh (L) Y = Mul ({product}) }}"
    )
    network = same_values(text, Mish(), torch.randn(3, 4))
    assert operators(network) == ["Mish"]
    assert not network.constants, "nobody reads the one any more"


def test_a_variable_is_the_same_array_everywhere_and_a_number_that_number():
    other = (
        "g (float[3] X, float[3] Z) => (float[3] Y) <float one = {{{one}}}> "
        "{{ E = Exp ({e}) S = Add (E, one) L = Log (S) T = Tanh (L) Y = Mul (X, T) }}"
    )
    for one, e in ((1.0, "Z"), (2.0, "X")):
        record = Mish()(imported(other.format(one=one, e=e)))
        assert record.applied == {} and record.refused == ()


class Once(Rewrite):
    """Relu(Relu(x)) -> Relu(x)"""

    def pattern(self, op: Any, x: Any) -> Any:
        return op.Relu(op.Relu(x))

    def rewrite(self, op: Any, x: Any) -> Any:
        return op.Relu(x)


def test_what_was_rewritten_is_looked_at_again():
    chain = " ".join(f"R{i + 1} = Relu (R{i})" for i in range(9))
    text = f"g (float[4] R0) => (float[4] R9) {{ {chain} }}"
    network = same_values(text, Once(), torch.randn(4))
    assert operators(network) == ["Relu"]
    assert network.passes[0].applied == {"Once": 8}


class NoIdentity(Rewrite):
    """Add(x, 0) -> x"""

    def pattern(self, op: Any, x: Any) -> Any:
        return op.Add(x, 0, name="sum")

    def check(self, x: Any, sum: Any) -> str | None:
        (result,) = sum.results
        return None if x.shape == result.shape else "the sum has another shape"

    def rewrite(self, op: Any, x: Any) -> Any:
        return x


def test_a_value_that_exists_takes_the_place_of_a_result():
    text = (
        "g (float[4] X) => (float[4] Y) <float[1] zero = {0}> "
        "{ S = Add (X, zero) T = Neg (S) Y = Add (T, zero) }"
    )
    network = same_values(text, NoIdentity(), torch.randn(4))
    assert operators(network) == ["Neg"]
    text = "g (float[4] X) => (float[4] Y) <float[1] zero = {0}> { Y = Add (X, zero) }"
    assert operators(same_values(text, NoIdentity(), torch.randn(4))) == ["Identity"]


class Halves(Rewrite):
    """Split in two and joined the other way -> two slices; several results, constants and inference"""

    def pattern(self, op: Any, x: Any, sizes: Any) -> Any:
        return op.Split(x, sizes, results=2, axis=0)

    def rewrite(self, op: Any, x: Any, sizes: Any) -> Any:
        first = int(sizes.constant[0])
        return op.Slice(x, [0], [first], [0]), op.Slice(op.Mul(x, 1.0), [first], [int(x.shape[0])], [0])


def test_several_results_and_constants_of_its_own():
    text = (
        "g (float[5, 2] X) => (float[5, 2] Y) <int64[2] sizes = {2, 3}> "
        "{ A, B = Split <axis = 0> (X, sizes) Y = Concat <axis = 0> (B, A) }"
    )
    network = same_values(text, Halves(), torch.randn(5, 2))
    assert operators(network) == ["Concat", "Mul", "Slice", "Slice"]


class Wrong(Rewrite):
    """A replacement of another shape"""

    def pattern(self, op: Any, x: Any) -> Any:
        return op.Neg(x)

    def rewrite(self, op: Any, x: Any) -> Any:
        return op.ReduceSum(x, np.array([0]), keepdims=0)


class Endless(Rewrite):
    """x -> -(-(-x)), and again"""

    def pattern(self, op: Any, x: Any) -> Any:
        return op.Neg(x)

    def rewrite(self, op: Any, x: Any) -> Any:
        return op.Neg(op.Abs(op.Neg(x)))


@pytest.mark.parametrize(
    ("rewrite", "facts"),
    [
        (Wrong(), ["rewrite Wrong", "float32[4, 3]", "float32[3]", "rewrite()"]),
        (Endless(), ["rewrite Endless", "times", "check()"]),
    ],
    ids=["wrong", "endless"],
)
def test_a_rewrite_that_is_wrong_is_named(rewrite: Rewrite, facts: list[str]):
    with raises(UnsupportedProgramError, *facts):
        rewrite(imported("g (float[4, 3] X) => (float[4, 3] Y) { Y = Neg (X) }"))


def test_names_that_the_pattern_lacks_are_a_mistake():
    class Asking(Once):
        def check(self, relu: Any) -> str | None:  # pyright: ignore[reportIncompatibleMethodOverride]
            return None

    with raises(TypeError, "Asking.check", "['relu']", "['x']"):
        Asking()(imported("g (float[4] X) => (float[4] Y) { A = Relu (X) Y = Relu (A) }"))


def test_symbolic_sizes_and_rank_0():
    text = (
        "g (float[N, 3] X, float S) => (float[N, 3] Y) <float one = {1}> "
        "{ A = Mul (X, S) E = Exp (A) P = Add (E, one) L = Log (P) T = Tanh (L) Y = Mul (A, T) }"
    )
    network = same_values(text, Mish(), torch.randn(6, 3), torch.tensor(0.5))
    assert operators(network) == ["Mish", "Mul"]


def rewrite_of(pattern: Any, rewrite: Any, **attributes: Any) -> Rewrite:
    """A rewrite made of two functions."""
    return type("Made", (Rewrite,), {"pattern": pattern, "rewrite": rewrite, **attributes})()


ROOT = rewrite_of(lambda self, op, x: op.Pow(x, 0.5), lambda self, op, x: op.Sqrt(x))


@pytest.mark.parametrize(("kind", "value", "count"), [("int64", 0, 0), ("float", 0.5, 1), ("double", 0.5, 1)])
def test_a_number_matches_a_constant_of_that_value_only(kind: str, value: float, count: int):
    text = f"g (float[2, 3] A) => (float[2, 3] Y) <{kind} k = {{{value}}}> {{ Y = Pow (A, k) }}"
    record = ROOT(imported(text))
    assert sum(record.applied.values()) == count


def test_results_of_several_operators_are_no_pattern():
    both = rewrite_of(lambda self, op, x: (op.Exp(x), op.Log(x)), lambda self, op, x: (x, x))
    with raises(TypeError, "Made.pattern", "several operators"):
        both(imported("g (float[2] A) => (float[2] Y) { Y = Exp (A) }"))


@pytest.mark.parametrize(
    ("pattern", "facts"),
    [
        (lambda self, op, x: op.Mull(x, x), ["Mull"]),
        (lambda self, op, x: op.Softmax(x, axes=1), ["op.Softmax", "'axes'", "has axis"]),
        (lambda self, op, x: op.Relu(x, x), ["op.Relu", "1 operands", "2"]),
        (lambda self, op, x: op.Relu(x, results=2), ["op.Relu", "1 results", "2"]),
    ],
)
def test_a_pattern_that_nothing_can_match_is_a_mistake(pattern: Any, facts: list[str]):
    never = rewrite_of(pattern, lambda self, op, x: x)
    with raises(DacemlError, *facts):
        never(imported("g (float[2] A) => (float[2] Y) { Y = Exp (A) }"))


@pytest.mark.parametrize("given", [None, Anything("x")])
def test_a_pattern_gives_results(given: Any):
    nothing = rewrite_of(lambda self, op, x: given, lambda self, op, x: x)
    with raises(TypeError, "Made.pattern", given, "op.Name"):
        nothing(imported("g (float[2] A) => (float[2] Y) { Y = Exp (A) }"))


@pytest.mark.parametrize("given", [True, False, 0, 3])
def test_a_check_gives_a_sentence_or_none(given: Any):
    doubtful = rewrite_of(lambda self, op, x: op.Exp(x), lambda self, op, x: x, check=lambda self, x: given)
    with raises(TypeError, "Made.check", given, "None"):
        doubtful(imported("g (float[2] A) => (float[2] Y) { Y = Exp (A) }"))


FIRST = rewrite_of(lambda self, op, a, b: op.Mul(a, b), lambda self, op, a, b: a)


def test_an_input_that_nobody_reads_any_more_stays_the_callers():
    text = "g (float[4] A, float[4] B) => (float[4] Y) { R = Relu (A) P = Mul (R, B) Y = Neg (P) }"
    network = imported(text)
    FIRST(network)
    network.sdfg.validate()
    assert operators(network) == ["Neg", "Relu"]
    a, b = torch.randn(4), torch.randn(4)
    torch.testing.assert_close(values(network, a, b)[0], -a.relu())


def test_constants_that_a_rewrite_did_not_use_go():
    spare = rewrite_of(
        lambda self, op, a: op.Neg(a),
        lambda self, op, a: (op.constant(np.ones(3, np.float32)), op.Relu(a))[1],
    )
    network = imported("g (float[3] A) => (float[3] Y) { Y = Neg (A) }")
    spare(network)
    network.sdfg.validate()
    assert not network.constants


SPLIT = (
    "g (float[4, 3] A) => (float[2, 3] Y, float[2, 3] Z) <int64[2] s = {2, 2}> "
    "{ P, Q = Split <axis = 0> (A, s) Y = Relu (P) Z = Exp (Q) }"
)


def test_one_value_for_two_results_is_refused():
    def twice(self: Any, op: Any, x: Any, k: Any) -> Any:
        half = op.Slice(x, [0], [2], [0])
        return half, half

    one = rewrite_of(lambda self, op, x, k: op.Split(x, k, axis=0, results=2), twice)
    with raises(UnsupportedProgramError, "rewrite Made", "two results", "op.Identity(value)"):
        one(imported(SPLIT))


def test_a_result_that_the_pattern_leaves_out_keeps_the_operator():
    first = rewrite_of(
        lambda self, op, x, k: op.Split(x, k, axis=0), lambda self, op, x, k: op.Slice(x, [0], [2], [0])
    )
    (refusal,) = first(imported(SPLIT)).refused
    assert refusal.reason == golden()
    assert "another result of Split" in refusal.reason


def test_an_absent_result_is_no_match():
    both = rewrite_of(
        lambda self, op, x: op.MaxPool(x, results=2),
        lambda self, op, x: op.MaxPool(x, kernel_shape=[2, 2], results=2),
    )
    text = "g (float[1, 1, 4, 4] A) => (float[1, 1, 3, 3] Y) { Y = MaxPool <kernel_shape = [2, 2]> (A) }"
    assert both(imported(text)).applied == {}


def test_a_replacement_does_not_read_what_it_replaces():
    again = rewrite_of(lambda self, op, a: op.Exp(a, name="e"), lambda self, op, a, e: op.Abs(e.results[0]))
    with raises(UnsupportedProgramError, "rewrite Made", "Abs", "Exp"):
        again(imported("g (float[2] A) => (float[2] Y) { Z = Exp (A) Y = Neg (Z) }"))


def test_a_tensor_of_unknown_shape_has_to_be_given_one():
    unknown = rewrite_of(
        lambda self, op, a: op.Neg(a), lambda self, op, a: op.ReduceSum(op.Cast(op.NonZero(a), to=1))
    )
    with raises(UnsupportedProgramError, "rewrite Made", "shape", "op.Name(…, shape=…, dtype=…)"):
        unknown(imported("g (float[2] A) => (float[1] Y) { B = ReduceSum (A) Y = Neg (B) }"))


def test_places_that_a_rewrite_makes_are_found_in_the_same_pass():
    text = "g (float[3] A) => (float[3] Y) { B = Exp (A) C = Log (B) D = Exp (C) Y = Log (D) }"
    inverse = rewrite_of(lambda self, op, a: op.Log(op.Exp(a)), lambda self, op, a: a)
    assert inverse(imported(text)).applied == {"Made": 2}
    other = "g (float[3] A) => (float[3] Y) { B = Log (A) C = Exp (B) D = Log (C) E = Exp (D) Y = Neg (E) }"
    inside = rewrite_of(lambda self, op, a: op.Exp(op.Log(a)), lambda self, op, a: a)
    network = imported(other)
    assert inside(network).applied == {"Made": 2}
    assert operators(network) == ["Neg"]


def test_attributes_that_are_called_shape_or_dtype():
    ones = rewrite_of(
        lambda self, op, a: op.Neg(a), lambda self, op, a: op.Cast(op.EyeLike(a, dtype=7), to=1)
    )
    network = imported("g (float[3, 3] A) => (float[3, 3] Y) { Y = Neg (A) }")
    ones(network)
    (eye,) = [n for n in network.state.nodes() if isinstance(n, ONNXNode) and n.op_type == "EyeLike"]
    assert eye.attribute_values()["dtype"] == 7
    torch.testing.assert_close(values(network, torch.randn(3, 3))[0], torch.eye(3))
