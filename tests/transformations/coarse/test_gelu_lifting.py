"""GELU as users spell it becomes one operator, with eager's numbers and nothing kept but its operand."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

from daceml.transformations.coarse.gelu_lifting import NAME, lift_gelu
from tests.support.golden import golden
from tests.support.imported_networks import imported
from tests.transformations.coarse.lifted import Of, equals_eager, lifted, operators, reasons

Function = Callable[[torch.Tensor], torch.Tensor]
FACTOR = math.sqrt(2 / math.pi)
FORMS: dict[str, Function] = {
    "a half of x first": lambda x: 0.5 * x * (1 + torch.erf(x / math.sqrt(2))),
    "a half of the rest": lambda x: x * (0.5 * (1.0 + torch.erf(x * math.sqrt(0.5)))),
    "a quotient by a rounded root": lambda x: x * 0.5 * (torch.erf(x * (1 / math.sqrt(2))) + 1),
    "a half last": lambda x: 0.5 * (x * (1 + torch.erf(x / math.sqrt(2)))),
    "a power": lambda x: 0.5 * x * (1 + torch.tanh(FACTOR * (x + 0.044715 * torch.pow(x, 3)))),
    "products": lambda x: x * (0.5 * (1 + torch.tanh(FACTOR * (x + 0.044715 * (x * x * x))))),
}
EDGES = (0.0, -0.0, 5.0, -5.0, 20.0, -20.0, 1e4, -1e4, 1e13, -1e13, 1e30, -1e30, 1e-30)


def every_form(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return tuple(form(x) for form, x in zip(FORMS.values(), tensors, strict=True))


def test_every_form_is_found_and_has_eagers_numbers_and_gradients():
    tensors = [torch.randn(3, 1, 7 + i, dtype=torch.float64) for i in range(len(FORMS))]
    assert operators(lifted(Of(every_form), *tensors)) == {"Gelu": len(FORMS)}
    equals_eager(Of(every_form), *tensors)


def test_edges_are_eagers():
    x = torch.tensor([*EDGES, math.inf, -math.inf, math.nan], dtype=torch.float32)
    # an ulp of each of both sides
    equals_eager(Of(every_form), *(x.clone() for _ in FORMS), rtol=4e-7)


def test_another_factor_is_no_gelu():
    network = lifted(Of(lambda x: 0.5 * x * (1 + torch.erf(x / 1.4))), torch.randn(5))
    assert "Gelu" not in operators(network)
    (reason,) = reasons(network, NAME)
    assert reason == golden()
    assert "val_1" in reason and "1.41421" in reason


def test_half_types_stay():
    # a half, 1 and the root of 2 by their bits
    network = imported(
        "g (float16[5] X) => (float16[5] Y) "
        "<float16 half = {14336}, float16 one = {15360}, float16 root = {15784}> "
        "{ H = Mul (X, half) D = Div (X, root) E = Erf (D) S = Add (E, one) Y = Mul (H, S) }"
    )
    assert lift_gelu(network) == 0
    (reason,) = reasons(network, NAME)
    assert reason == golden()
    assert "float16" in reason


def test_a_part_that_is_wanted_elsewhere_stays():
    def function(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        share = torch.erf(x / math.sqrt(2))
        return 0.5 * x * (1 + share), share

    network = lifted(Of(function), torch.randn(5))
    (reason,) = reasons(network, NAME)
    assert reason == golden()
    assert "Erf" in reason and "result" in reason
    equals_eager(Of(function), torch.randn(2, 5, dtype=torch.float64))
