"""Short spatial rows become one long one around batch norms in training."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import daceml
from daceml.transformations.coarse.spatial_flattening import flatten_spatial_dimensions
from tests.support.golden import golden
from tests.support.imported_networks import imported, operators, values
from tests.support.sampling import sampled

BATCH_NORM = (
    "g (float[2, 3, 5, 7] I, float[3] s, float[3] b, float[3] m, float[3] v, float[2, 3, 1, 1] g) "
    "=> (float[2, 3, 5, 7] Y, float[2, 3, 5, 7] Z) <float two = {2}> { "
    "X = MaxPool <kernel_shape = [1, 1]> (I) "
    "N, m1, v1 = BatchNormalization <training_mode = 1> (X, s, b, m, v) R = Relu (N) "
    "G = Mul (R, g) A = Add (G, X) T = Mul (A, two) Y = MaxPool <kernel_shape = [1, 1]> (T) "
    "Z = Softmax <axis = 1> (T) }"
)


def arguments() -> list[torch.Tensor]:
    torch.manual_seed(0)
    channels = [torch.rand(3) + 0.5 for _ in range(4)]
    return [torch.randn(2, 3, 5, 7), *channels, torch.randn(2, 3, 1, 1)]


def test_a_chain_goes_flat_and_every_reader_has_a_view():
    given = arguments()
    expected = values(imported(BATCH_NORM), *given)
    network = imported(BATCH_NORM)
    assert flatten_spatial_dimensions(network) == 5
    network.sdfg.validate()
    # of X and of the factor, and of the result for each of its two readers
    assert operators(network).count("Reshape") == 4
    flat = [n for n, d in network.sdfg.arrays.items() if n.endswith("_flat") and tuple(d.shape) == (2, 3, 35)]
    assert len(flat) == 5
    for ours, theirs in zip(values(network, *given), expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("before", "after", "fact"),
    [
        ("float[2, 3, 1, 1] g", "float[1, 1, 5, 7] g", "dimensions"),
        (
            "T = Mul (A, two) Y = MaxPool <kernel_shape = [1, 1]> (T)",
            "T = Mul (A, two) Y = Mul (A, T)",
            "result",
        ),
        ("A = Add (G, X)", "A = Add (G, I)", "operand"),
    ],
)
def test_refusals(before: str, after: str, fact: str):
    network = imported(BATCH_NORM.replace(before, after))
    flatten_spatial_dimensions(network)
    said = "\n".join(r.reason for r in network.passes[-1].refused)
    assert said == golden()
    assert fact in said


def test_long_rows_and_inference_stay():
    network = imported(BATCH_NORM.replace("5, 7]", "5, 128]"))
    assert flatten_spatial_dimensions(network) == 0
    # in inference there is no second result
    text = BATCH_NORM.replace("N, m1, v1", "N").replace(" <training_mode = 1>", "")
    assert flatten_spatial_dimensions(imported(text)) == 0


class Residual(nn.Module):
    """Two readers of what is flat: gradients meet there."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 6, 3, padding=1, bias=False)
        self.first, self.second = nn.BatchNorm2d(6), nn.BatchNorm2d(6)
        self.conv, self.other = nn.Conv2d(6, 6, 3, padding=1), nn.Conv2d(6, 6, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        a = torch.relu(self.first(self.stem(x)))
        b = torch.nn.functional.silu(self.second(self.conv(a)) + a)
        return self.other(b).sum((2, 3)) + b.amax((2, 3))


SIZES = [(2, 3, 7, 7), (1, 3, 5, 3), (3, 3, 1, 1), (2, 3, 9, 14)]


@pytest.mark.parametrize("size", sampled([(s,) for s in SIZES], ((2, 3, 7, 7),), ((3, 3, 1, 1),)))
def test_gradients(size: tuple[int, ...]):
    torch.manual_seed(1)
    theirs = Residual().double()
    ours = Residual().double()
    ours.load_state_dict(theirs.state_dict())
    compiled = daceml.compile(ours)
    x = torch.randn(size, dtype=torch.float64, requires_grad=True)
    y = x.detach().clone().requires_grad_()
    expected, found = theirs(x), compiled(y)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    weight = torch.randn_like(expected)
    expected.backward(weight)
    found.backward(weight)
    torch.testing.assert_close(y.grad, x.grad, rtol=1e-9, atol=1e-9)
    for (name, p), q in zip(theirs.named_parameters(), ours.parameters(), strict=True):
        torch.testing.assert_close(q.grad, p.grad, rtol=1e-9, atol=1e-9, msg=name)
    for p, q in zip(theirs.buffers(), ours.buffers(), strict=True):
        torch.testing.assert_close(q, p, rtol=1e-12, atol=1e-12)
