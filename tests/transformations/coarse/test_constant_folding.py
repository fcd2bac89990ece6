"""What depends on constants only is computed once where it is dear, with the numbers of float64."""

from __future__ import annotations

import math

import torch

from daceml.transformations.coarse.constant_folding import fold_constants
from tests.support.golden import golden
from tests.support.imported_networks import imported, values
from tests.support.imported_networks import operators as names
from tests.transformations.coarse.lifted import Of, equals_eager, lifted, operators, reasons


def rotary(x: torch.Tensor) -> torch.Tensor:
    """Rotary positions with tables that forward computes."""
    frequencies = 1.0 / 10000.0 ** (torch.arange(0, x.shape[-1], 2, dtype=x.dtype) / x.shape[-1])
    angles = torch.outer(torch.arange(x.shape[-2], dtype=x.dtype), frequencies)
    even, odd = x[..., 0::2], x[..., 1::2]
    turned = (even * angles.cos() - odd * angles.sin(), even * angles.sin() + odd * angles.cos())
    return torch.stack(turned, dim=-1).flatten(-2)


def test_tables_of_positions_are_computed_once():
    x = torch.randn(2, 3, 7, 6, dtype=torch.float64)
    network = lifted(Of(rotary), x)
    assert not {"Cos", "Sin", "Pow", "Range"} & operators(network).keys()
    equals_eager(Of(rotary), x)
    equals_eager(Of(rotary), x.float(), rtol=1e-6)


def test_chains_of_one_element():
    text = (
        "g (float[4] X) => (float[4] Y) <float two = {2}, float[1] third = {0.33333334}> "
        "{ A = Sqrt (two) B = Mul (A, third) C = Unsqueeze (B, zero) D = Squeeze (C, zero) Y = Mul (X, D) }"
    ).replace("third = {0.33333334}", "third = {0.33333334}, int64[1] zero = {0}")
    network = imported(text)
    assert fold_constants(network) == 1
    network.sdfg.validate()
    assert names(network) == ["Mul"]
    assert len(network.constants) == 1
    (found,) = network.constants.values()
    assert found.item() == torch.tensor(math.sqrt(2), dtype=torch.float32).mul(0.33333334).item()
    x = torch.randn(4)
    torch.testing.assert_close(values(network, x)[0], x * found.item(), rtol=0, atol=0)


def test_what_is_as_cheap_as_reading_it_stays():
    def causal(x: torch.Tensor) -> torch.Tensor:
        ahead = torch.arange(x.shape[-1])[:, None] < torch.arange(x.shape[-1])
        return x.masked_fill(ahead, -math.inf).softmax(-1)

    network = lifted(Of(causal), torch.randn(5, 5))
    assert "\n".join(reasons(network, "fold_constants")) == golden()
    equals_eager(Of(causal), torch.randn(5, 5, dtype=torch.float64))


def test_weights_and_results_are_no_constants():
    text = "g (float[1] X) => (float[1] Y, float Z) <float two = {2}> { Z = Sqrt (two) Y = Sqrt (X) }"
    network = imported(text)
    assert fold_constants(network) == 0
    assert [r.reason for r in network.passes[-1].refused] == [golden()]
    assert "result" in network.passes[-1].refused[0].reason


def test_a_weight_may_change():
    module = torch.nn.Linear(3, 2).double()
    module.register_buffer("scale", torch.ones(1, dtype=torch.float64))
    module.forward = lambda x: torch.nn.functional.linear(x, module.weight.exp()) * module.scale.sqrt()
    assert {"Exp", "Sqrt"} <= operators(lifted(module, torch.randn(4, 3, dtype=torch.float64))).keys()
