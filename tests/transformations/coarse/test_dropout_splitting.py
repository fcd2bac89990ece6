"""A dropout is a draw and a product: torch's masks and special numbers, and one loop with its neighbours."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import daceml
from tests.support.golden import golden
from tests.support.sampling import sampled


class Between(nn.Module):
    """A dropout with loops before and behind it."""

    def __init__(self, p: float = 0.1) -> None:
        super().__init__()
        self.dropout = nn.Dropout(p)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.sigmoid(self.dropout(torch.exp(x)) + y)


@pytest.mark.parametrize(
    ("dtype", "shape"),
    sampled(
        [
            *((torch.float64, shape) for shape in [(1, 1), (33, 129), (0, 4), (3, 2, 5)]),
            *((dtype, (5, 7)) for dtype in (torch.float32, torch.bfloat16, torch.float16)),
        ],
        (torch.float64, (33, 129)),
        (torch.float64, (0, 4)),
        (torch.bfloat16, (5, 7)),
        (torch.float16, (5, 7)),
    ),
    ids=str,
)
def test_it_is_torchs_dropout(shape: tuple[int, ...], dtype: torch.dtype):
    module = Between(0.3)
    compiled = daceml.compile(module, backward=True)
    x = torch.randn(shape, dtype=dtype, requires_grad=True)
    y = torch.randn(shape[-1:], dtype=dtype)
    torch.manual_seed(1)
    expected = module(x, y)
    (gradient,) = torch.autograd.grad(expected.sum(), x)
    torch.manual_seed(1)
    result = compiled(x, y)
    half = {"rtol": 2e-2, "atol": 5e-2} if dtype.itemsize == 2 else {}  # eager rounds after every operator
    torch.testing.assert_close(result, expected, **half)
    torch.testing.assert_close(torch.autograd.grad(result.sum(), x)[0], gradient, **half)


def test_a_loop_takes_it_in():
    module = daceml.compile(Between())
    explanation = daceml.explain(module, torch.randn(64, 32), torch.randn(32))
    assert explanation.counts["kernels"] == 1, str(explanation)
    assert "split_dropout" in str(explanation)


def test_what_is_not_finite_stays_so_where_it_is_dropped():
    x = torch.tensor([float("nan"), float("inf"), -float("inf"), 1.0]).repeat(16)
    module = nn.Dropout(0.5)
    torch.manual_seed(0)
    expected = module(x)
    torch.manual_seed(0)
    torch.testing.assert_close(daceml.compile(module)(x), expected, equal_nan=True)


@pytest.mark.parametrize("p", [0.0, 1.0])
def test_what_draws_nothing_leaves_the_generator_alone(p: float):
    x = torch.randn(9)
    module = nn.Dropout(p)
    torch.manual_seed(0)
    expected, after = module(x), torch.rand(2)
    torch.manual_seed(0)
    torch.testing.assert_close(daceml.compile(module)(x), expected)
    assert torch.equal(torch.rand(2), after)


def test_a_seed_of_its_own_is_refused():
    from onnx import parser

    from daceml.frontend.onnx_import.importer import import_model
    from daceml.transformations.coarse.dropout_splitting import split_dropout

    model = parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 21]> g (float[3] x) => (float[3] y) '
        "<float r = {0.5}, bool t = {1}> { y = Dropout <seed = 3> (x, r, t) }"
    )
    network = import_model(model, name="seeded")
    assert split_dropout(network) == 0
    (record,) = network.passes
    assert [r.reason for r in record.refused] == [golden()]
    assert "seed" in record.refused[0].reason
