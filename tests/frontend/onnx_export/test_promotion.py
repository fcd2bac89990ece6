"""Operands of several element types, and operators by their other names."""

from __future__ import annotations

import pytest
import torch

from tests.support.eager_twin import unlike_eager

WHOLE = torch.tensor([3, 1, 2])
TYPES = {"whole": WHOLE, "truth": WHOLE > 1, "half": WHOLE.half(), "double": WHOLE.double()}


@pytest.mark.parametrize("x", TYPES.values(), ids=TYPES)
@pytest.mark.parametrize("y", [WHOLE.float() + 0.5, WHOLE.int() + 1], ids=["float", "int"])
def test_products_and_quotients_of_two_types(x, y):
    def function(x, y):
        return torch.divide(x, y), torch.multiply(x, y), torch.outer(x, y), torch.ger(y, x)

    assert unlike_eager(function, x, y) == []


def test_differences_of_two_types():
    assert unlike_eager(torch.subtract, WHOLE, WHOLE.double() / 7) == []


@pytest.mark.parametrize("x", [TYPES["whole"], TYPES["truth"], TYPES["half"]], ids=["whole", "truth", "half"])
def test_functions_of_whole_numbers(x):
    def function(x):
        special = torch.special
        return special.erf(x), special.expm1(x), special.log1p(x), special.sinc(x), torch.sinc(x), x.angle()

    assert unlike_eager(function, x) == []
