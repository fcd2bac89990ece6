"""Local response normalization, against torch."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from tests.onnx_ops.native.single_node import Case, Outcome, random


def normalized(size: int, *shape: int, alpha: float = 0.3, beta: float = 0.6, bias: float = 1.5) -> Case:
    x = random(*shape)
    expected = functional.local_response_norm(torch.from_numpy(x), size, alpha, beta, bias)
    attributes = {"size": size, "alpha": alpha, "beta": beta, "bias": bias}
    return Case(op="LRN", inputs=[x], attributes=attributes, expected=[expected.numpy()])


def even(size: int) -> Case:
    """One more element behind than before, as ONNX has it; torch has it the other way round."""
    case = normalized(size, 2, 5, 3, 2)
    x = torch.from_numpy(case.inputs[0]).flip(1)
    values = {k: v for k, v in case.attributes.items() if k != "size"}
    expected = functional.local_response_norm(x, size, values["alpha"], values["beta"], values["bias"])
    case.expected = [expected.flip(1).contiguous().numpy()]
    return case


CASES = {
    "odd": normalized(3, 2, 5, 4, 3),
    "wider than the channels": normalized(7, 2, 3, 4),
    "one": normalized(1, 2, 3, 4),
    "even": even(4),
}


@pytest.mark.parametrize("title", CASES)
def test_values(outcome: Outcome) -> None:
    outcome.check()
