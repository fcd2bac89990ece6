"""What nobody reads goes, with what only it has read; a draw of random numbers stays."""

from __future__ import annotations

import torch

from daceml.transformations.coarse.unread_operators import remove_unread_operators
from tests.support.golden import golden
from tests.support.imported_networks import imported, operators, values


def test_what_nobody_reads_goes():
    text = (
        "g (float[4, 1] X, float[3] Z) => (float[4, 3] Y) <float two = {2}> "
        "{ Y = Add (X, Z) A = Exp (X) B = Mul (A, two) C, D = TopK <axis = 0> (B, k) }"
    ).replace("{2}>", "{2}, int64[1] k = {2}>")
    network = imported(text)
    assert remove_unread_operators(network) == 3
    network.sdfg.validate()
    assert operators(network) == ["Add"]
    assert not network.constants
    x, z = torch.randn(4, 1), torch.randn(3)
    torch.testing.assert_close(values(network, x, z)[0], x + z)


def test_a_result_that_is_read_keeps_its_operator():
    text = "g (float[4] X) => (float[2] Y) <int64[1] k = {2}> { V, I = TopK (X, k) U = Neg (X) Y = Abs (V) }"
    network = imported(text)
    assert remove_unread_operators(network) == 1
    assert operators(network) == ["Abs", "TopK"]


def test_random_numbers_move_the_generator_on():
    text = "g (float[3] X) => (float[3] Y) { A = Exp (X) B = RandomNormalLike (A) C = Neg (B) Y = Abs (X) }"
    network = imported(text)
    assert remove_unread_operators(network) == 1
    assert operators(network) == ["Abs", "Exp", "RandomNormalLike"]
    network.passes.clear()
    remove_unread_operators(network)
    assert [r.reason for r in network.passes[-1].refused] == [golden()]
    assert "random" in network.passes[-1].refused[0].reason
