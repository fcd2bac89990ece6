"""Operators whose results their operands are go, pairs become one, and values stay the same to the bit."""

from __future__ import annotations

import math

import pytest
import torch

import daceml
from daceml.sdfg.network import Network
from daceml.transformations.coarse.trivial_operators import remove_trivial_operators
from tests.support.golden import golden
from tests.support.imported_networks import imported, operators, values
from tests.transformations.coarse.lifted import Of, equals_eager


def between(lines: str, constants: str = "", *, shape: str = "2, 3, 1, 5", result: str | None = None) -> str:
    """Operators from A to B between two that are not trivial."""
    return (
        f"g (float[{shape}] X) => (float[{shape if result is None else result}] Y) "
        f"{f'<{constants}>' if constants else ''} {{ A = Abs (X) {lines} Y = Neg (B) }}"
    )


TRIVIAL = {
    "Identity": between("B = Identity (A)"),
    "Cast": between("B = Cast <to = 1> (A)"),
    "Transpose": between("B = Transpose <perm = [0, 1, 2, 3]> (A)"),
    "Transpose of a size of 1": between("B = Transpose <perm = [0, 2, 1]> (A)", shape="2, 1, 1"),
    "Reshape": between("B = Reshape (A, s)", "int64[4] s = {2, -1, 1, 5}"),
    "Flatten": between("B = Flatten (A)", shape="4, 6"),
    "Expand": between("B = Expand (A, s)", "int64[2] s = {1, 5}"),
    "Tile": between("B = Tile (A, s)", "int64[4] s = {1, 1, 1, 1}"),
    "Pad": between("B = Pad (A, p)", "int64[8] p = {0, 0, 0, 0, 0, 0, 0, 0}"),
    "Slice": between("B = Slice (A, s, e, a)", "int64[1] s = {0}, int64[1] e = {99}, int64[1] a = {1}"),
    "Concat": between("B = Concat <axis = 1> (A)"),
    "Sum": between("B = Sum (A)"),
    "AveragePool": between("B = AveragePool <kernel_shape = [1, 1]> (A)"),
    "MaxPool": between("B = MaxPool <kernel_shape = [1, 1], strides = [1, 1]> (A)"),
    "Dropout": between("B = Dropout (A)"),
    "Mul by 1": between("B = Mul (one, A)", "float one = {1}"),
    "Div by 1": between("B = Div (A, one)", "float[1] one = {1}"),
    "Sub of 0": between("B = Sub (A, zero)", "float zero = {0}"),
    "Pow of 1": between("B = Pow (A, one)", "float one = {1}"),
    "Transpose of Transpose": between(
        "T = Transpose <perm = [1, 2, 3, 0]> (A) B = Transpose <perm = [3, 0, 1, 2]> (T)"
    ),
    "Reshape of Reshape": between(
        "T = Reshape (A, s) B = Reshape (T, r)", "int64[1] s = {30}, int64[4] r = {2, 3, 1, 5}"
    ),
    "Cast of a wider Cast": between("T = Cast <to = 11> (A) B = Cast <to = 1> (T)"),
}
SPECIAL = (0.0, -0.0, 1.5, -2.0, 1e-45, 3e38, math.inf, -math.inf, math.nan)


@pytest.mark.parametrize("name", TRIVIAL)
def test_what_changes_nothing_goes(name: str):
    network = imported(TRIVIAL[name])
    assert remove_trivial_operators(network) > 0
    network.sdfg.validate()
    assert operators(network) == ["Abs", "Neg"]
    assert network.passes[-1].refused == ()


KEPT = {
    "another type": between("T = Cast <to = 11> (A) D = Abs (T) B = Cast <to = 1> (D)"),
    "a square that is turned": between("B = Transpose (A)", shape="3, 3"),
    "backwards": between(
        "B = Slice (A, s, e, a, t)",
        "int64[1] s = {-1}, int64[1] e = {-99}, int64[1] a = {3}, int64[1] t = {-1}",
    ),
    "cropped and padded": between("B = Pad (A, p)", "int64[8] p = {0, 0, 0, 1, 0, 0, 0, -1}"),
    "a larger window": between("B = AveragePool <kernel_shape = [1, 3], pads = [0, 1, 0, 1]> (A)"),
    "0 added, which takes a sign away": between("B = Add (A, zero)", "float zero = {0}"),
    "-0 subtracted": between("B = Sub (A, zero)", "float zero = {-0.0}"),
    "a product that broadcasts": between("B = Mul (A, one)", "float[3, 1] one = {1, 1, 1}", shape="4"),
    "a product by 2": between("B = Mul (A, two)", "float two = {2}"),
}


@pytest.mark.parametrize("name", KEPT)
def test_what_changes_something_stays(name: str):
    text = KEPT[name]
    if name == "a product that broadcasts":
        text = text.replace("float[4] Y", "float[3, 4] Y")
    network = imported(text)
    assert remove_trivial_operators(network) == 0


@pytest.mark.parametrize(
    ("lines", "facts"),
    [
        ("T = Cast <to = 10> (A) B = Cast <to = 1> (T)", ["float16", "float32"]),
        ("T = Transpose <perm = [1, 0]> (A) B = Transpose <perm = [1, 0]> (T) Z = Neg (T)", ["Transpose"]),
    ],
)
def test_refusals(lines: str, facts: list[str]):
    text = between(lines, shape="2, 3")
    network = imported(text.replace("Y) ", "Y, float[3, 2] Z) ", 1) if "Z" in lines else text)
    remove_trivial_operators(network)
    (reason,) = [r.reason for r in network.passes[-1].refused]
    assert reason == golden()
    assert all(fact in reason for fact in facts)


def same_to_the_bit(text: str, x: torch.Tensor, expected: list[str]) -> Network:
    network = imported(text)
    remove_trivial_operators(network)
    network.sdfg.validate()
    assert operators(network) == expected
    (ours,), (theirs,) = values(network, x), values(imported(text), x)
    assert ours.shape == theirs.shape
    assert torch.equal(ours.view(torch.int32), theirs.view(torch.int32))
    return network


def test_pairs_become_one_operator():
    x = torch.tensor((*SPECIAL, 4.0)).reshape(1, 2, 5)
    lines = "T = Transpose <perm = [1, 2, 0]> (A) B = Transpose <perm = [1, 0, 2]> (T)"
    same_to_the_bit(between(lines, shape="1, 2, 5", result="5, 2, 1"), x, ["Abs", "Neg", "Transpose"])
    lines = "T = Unsqueeze (A, a) U = Reshape (T, s) B = Flatten (U)"
    constants = "int64[1] a = {0}, int64[3] s = {5, 2, 1}"
    text = between(lines, constants, shape="1, 2, 5", result="5, 2")
    same_to_the_bit(text, x, ["Abs", "Neg", "Reshape"])
    lines = "T = Cast <to = 11> (H) B = Cast <to = 1> (T)"
    text = between(f"H = Cast <to = 10> (A) {lines}", shape="1, 2, 5")
    same_to_the_bit(text, x, ["Abs", "Cast", "Cast", "Neg"])


def test_an_open_batch_is_kept_open():
    text = between(
        "T = Reshape (A, s) B = Reshape (T, r)",
        "int64[2] s = {0, 6}, int64[3] r = {0, 3, 2}",
        shape="N, 2, 3",
        result="N, 3, 2",
    )
    network = imported(text)
    assert remove_trivial_operators(network) == 1
    assert operators(network) == ["Abs", "Neg", "Reshape"]
    for batch in (1, 4):
        again = imported(text)
        remove_trivial_operators(again)
        x = torch.randn(batch, 2, 3)
        torch.testing.assert_close(values(again, x)[0], -x.abs().reshape(batch, 3, 2), rtol=0, atol=0)


def test_an_input_that_is_returned_is_copied():
    text = "g (float[4] X) => (float[4] Y) { Y = Cast <to = 1> (X) }"
    network = imported(text)
    assert remove_trivial_operators(network) == 0
    assert [r.reason for r in network.passes[-1].refused] == [golden()]
    assert "operand" in network.passes[-1].refused[0].reason
    # where the operand is the network's own, what makes it makes the result
    network = imported("g (float[4] X) => (float[4] Y) { A = Neg (X) Y = Cast <to = 1> (A) }")
    remove_trivial_operators(network)
    assert operators(network) == ["Neg"]
    torch.testing.assert_close(values(network, torch.ones(4))[0], -torch.ones(4))


def test_gradients_are_eagers():
    def function(x: torch.Tensor) -> torch.Tensor:
        y = (x * 1.0).transpose(0, 2).transpose(0, 2).reshape(-1).reshape(x.shape).to(torch.float32)
        return torch.nn.functional.avg_pool2d(y.to(torch.float64)[None], 1)[0] ** 2 / 1.0

    equals_eager(Of(function), torch.randn(2, 3, 5, dtype=torch.float64), rtol=1e-6)


@pytest.mark.parametrize("one_first", [True, False])
def test_a_product_of_constants_keeps_the_one_that_is_not_1(one_first: bool):
    def scaled(x: torch.Tensor) -> torch.Tensor:
        one, eight = torch.tensor(1.0, dtype=x.dtype), torch.tensor(8.0, dtype=x.dtype)
        return x / (one * eight if one_first else eight * one)

    x = torch.randn(5, dtype=torch.float64)
    torch.testing.assert_close(daceml.compile(Of(scaled))(x), x / 8)


def test_an_einsum_that_only_reorders_is_a_transpose():
    def after(lines: str, result: str) -> list[str]:
        network = imported(between(lines, result=result))
        remove_trivial_operators(network)
        network.sdfg.validate()
        return operators(network)

    once = 'B = Einsum <equation = "...ij->...ji"> (A)'
    twice = 'C = Einsum <equation = "...ij->...ji"> (A) B = Einsum <equation = "abcd->abdc"> (C)'
    assert after(once, "2, 3, 5, 1") == ["Abs", "Neg", "Transpose"]
    assert after(twice, "2, 3, 1, 5") == ["Abs", "Neg"]
    assert after('B = Einsum <equation = "abcd->abd"> (A)', "2, 3, 5") == ["Abs", "Einsum", "Neg"]
