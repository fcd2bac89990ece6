"""Convolutions of a training step keep their channels innermost, with what lies between them."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional

import daceml
from daceml.module.module import DaceModule
from daceml.transformations.coarse.channels_innermost import keep_channels_innermost
from daceml.transformations.recipe import Step
from daceml.transformations.standard import standard_recipe
from tests.support.golden import golden
from tests.support.imported_networks import imported, operators, values
from tests.support.sampling import sampled

ALWAYS = standard_recipe().before(
    "flatten_spatial_dimensions", Step(keep_channels_innermost, {"always": True}, only=("training",))
)
BLOCK = (
    "g (float[2, 8, 57, 31] X, float[8, 1, 3, 3] D, float[8] s, float[8] b, float[8] m, float[8] v, "
    "float[12, 8, 1, 1] W, float[2, 8, 1, 1] f) => (float[2, 12, 57, 31] Y, float[2, 8, 1, 1] P) "
    "<float two = {2}> "
    "{ C = Conv <group = 8, pads = [1, 1, 1, 1]> (X, D) "
    "N, m1, v1 = BatchNormalization <training_mode = 1> (C, s, b, m, v) R = Relu (N) "
    "T = Mul (R, two) F = Mul (T, f) P = GlobalAveragePool (F) A = Add (F, C) Y = Conv (A, W) }"
)


def arguments() -> list[torch.Tensor]:
    torch.manual_seed(0)
    channels = [torch.rand(8) + 0.5 for _ in range(4)]
    return [
        *(torch.randn(2, 8, 57, 31), torch.randn(8, 1, 3, 3), *channels),
        *(torch.randn(12, 8, 1, 1), torch.randn(2, 8, 1, 1)),
    ]


def test_a_block_changes_between_two_transposes():
    given = arguments()
    expected = values(imported(BLOCK), *given)
    network = imported(BLOCK)
    assert keep_channels_innermost(network, always=True) == 8
    network.sdfg.validate()
    found = operators(network)
    assert found.count("ChannelsLastConv") == 2
    assert "Conv" not in found
    assert found.count("Transpose") == 2
    assert found.count("ReduceMean") == 1
    for ours, theirs in zip(values(network, *given), expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)


def test_a_region_changes_where_that_pays():
    wide = BLOCK.replace("57, 31", "112, 112")
    assert keep_channels_innermost(imported(wide)) == 0, "two transposes cost more than two convolutions gain"
    inside = wide.replace("{ C = Conv", "{ X1 = Conv (X, I) X2 = Conv (X1, J) C = Conv").replace(
        "(X, D)", "(X2, D)"
    )
    inside = inside.replace("float[2, 8, 112, 112] X", "float[2, 1, 112, 112] X").replace(
        "float[2, 8, 1, 1] f)", "float[2, 8, 1, 1] f, float[96, 1, 1, 1] I, float[8, 96, 1, 1] J)"
    )
    network = imported(inside)
    assert keep_channels_innermost(network) == 10
    assert operators(network).count("Transpose") + operators(network).count("Reshape") == 4


@pytest.mark.parametrize(
    ("before", "after", "fact"),
    [
        ("57, 31", "7, 5", "transposes"),
        ("float[8, 1, 3, 3] D", "float[8, 8, 9, 9] D", "648 terms"),
        ("float", "double", "float64"),
        ("float[2, 8, 1, 1] f", "float[8, 1, 1] f", "broadcast"),
    ],
)
def test_refusals(before: str, after: str, fact: str):
    text = BLOCK.replace(before, after)
    if "9, 9" in after:
        text = text.replace("group = 8, pads = [1, 1, 1, 1]", "pads = [4, 4, 4, 4]")
    network = imported(text)
    keep_channels_innermost(network)
    said = "\n".join(r.reason for r in network.passes[-1].refused)
    assert said == golden()
    assert fact in said


class Net(nn.Module):
    """Every kind of window, and two readers of an image."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, stride=2, padding=1, bias=False)
        self.deep = nn.Conv2d(8, 8, 3, padding=2, dilation=2, groups=8)
        self.groups = nn.Conv2d(8, 12, (3, 1), padding=(1, 0), groups=4)
        self.point = nn.Conv2d(12, 8, 1)
        self.squeeze, self.last = nn.Conv2d(8, 8, 1), nn.Linear(8, 5)
        self.norms = nn.ModuleList(nn.BatchNorm2d(8) for _ in range(3))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        first = functional.relu6(self.norms[0](self.stem(functional.pad(x, (0, 1, 0, 1)))))
        y = functional.silu(self.norms[1](self.deep(first)))
        y = y * torch.sigmoid(self.squeeze(functional.adaptive_avg_pool2d(y, 1)))
        y = self.norms[2](self.point(torch.relu(self.groups(y)))) + first
        return self.last(functional.adaptive_avg_pool2d(y, 1).flatten(1)), y


SMALL = [(2, 3, 17, 13), (1, 3, 15, 15), (3, 3, 2, 2)]
# loops over windows are slow, and the same at any size
SIZES = [*((size, native) for size in SMALL for native in (False, True)), ((1, 3, 160, 140), False)]


@pytest.mark.parametrize(("size", "prefer_native"), sampled(SIZES, *SIZES[:2]))
def test_gradients(size: tuple[int, ...], prefer_native: bool):
    torch.manual_seed(1)
    theirs = Net().double()
    ours = copy.deepcopy(theirs)
    compiled = daceml.compile(ours, backward=True, recipe=ALWAYS, prefer_native=prefer_native)
    x = torch.randn(size, dtype=torch.float64, requires_grad=True)
    z = x.detach().clone().requires_grad_()
    expected, found = theirs(x), compiled(z)
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)
        assert a.stride() == b.stride()
    weights = [torch.randn_like(y) for y in expected]
    torch.autograd.backward(expected, weights)
    torch.autograd.backward(found, weights)
    torch.testing.assert_close(z.grad, x.grad, rtol=1e-9, atol=1e-9)
    for (name, p), q in zip(theirs.named_parameters(), ours.parameters(), strict=True):
        torch.testing.assert_close(q.grad, p.grad, rtol=1e-9, atol=1e-9, msg=name)
        assert q.grad is not None
        assert p.grad is not None
        assert q.grad.stride() == p.grad.stride(), name
    for p, q in zip(theirs.buffers(), ours.buffers(), strict=True):
        torch.testing.assert_close(q, p, rtol=1e-12, atol=1e-12)
    assert isinstance(compiled, DaceModule)
    variant, _ = compiled.session.variant((z,), {})
    assert variant.backward is not None
    labels = [s.label for p in (variant.program, variant.backward.program) for s in p.manifest.steps]
    assert sum("ChannelsLastConv" in label for label in labels) >= 4


class Cube(nn.Module):
    """An image as high and wide as it has channels: its shape does not tell in which order they are."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(6, 6, 3, padding=1), nn.Conv2d(6, 6, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(torch.tanh(self.first(x)))


def test_an_image_that_looks_the_same_in_both_orders():
    torch.manual_seed(2)
    theirs = Cube()
    ours = copy.deepcopy(theirs)
    compiled = daceml.compile(ours, backward=True, recipe=ALWAYS)
    x = torch.randn(2, 6, 6, 6, requires_grad=True)
    z = x.detach().clone().requires_grad_()
    expected, found = theirs(x), compiled(z)
    torch.testing.assert_close(found, expected)
    expected.square().sum().backward()
    found.square().sum().backward()
    torch.testing.assert_close(z.grad, x.grad)
    for p, q in zip(theirs.parameters(), ours.parameters(), strict=True):
        torch.testing.assert_close(q.grad, p.grad)


def test_an_empty_batch():
    module = Cube()
    compiled = daceml.compile(copy.deepcopy(module), backward=True, recipe=ALWAYS)
    x = torch.randn(0, 6, 6, 6, requires_grad=True)
    found = compiled(x)
    assert found.shape == module(x).shape
    found.sum().backward()
    assert x.grad is not None


def test_statistics_of_an_image_that_leaves_the_near_caches():
    """A mean and a variance go through its rows one after the other, in chunks."""
    torch.manual_seed(3)
    theirs = nn.Sequential(nn.Conv2d(3, 32, 1), nn.BatchNorm2d(32))
    ours = copy.deepcopy(theirs)
    compiled = daceml.compile(ours, backward=True, recipe=ALWAYS)
    x = torch.randn(2, 3, 150, 141)
    y = theirs.double()(x.double())
    found = compiled(x)
    torch.testing.assert_close(found.double(), y, rtol=1e-5, atol=1e-5)
    weight = torch.randn_like(found)
    y.backward(weight.double())
    found.backward(weight)
    for p, q in zip(theirs[1].parameters(), ours[1].parameters(), strict=True):
        assert q.grad is not None
        torch.testing.assert_close(q.grad.double(), p.grad, rtol=1e-5, atol=1e-3)
    for p, q in zip(theirs.buffers(), ours.buffers(), strict=True):
        torch.testing.assert_close(q.double(), p.double(), rtol=1e-6, atol=1e-6)


def test_a_batch_norm_at_the_border_of_a_region():
    text = (
        "g (float[2, 8, 57, 31] X, float[8] s, float[8] b, float[8] m, float[8] v, float[12, 8, 1, 1] W) "
        "=> (float[2, 12, 57, 31] Y) "
        "{ N, m1, v1 = BatchNormalization <training_mode = 1> (X, s, b, m, v) R = Relu (N) Y = Conv (R, W) }"
    )
    x, _, *channels, weight, _ = arguments()
    expected = values(imported(text), x, *channels, weight)
    network = imported(text)
    assert keep_channels_innermost(network, always=True) == 3
    network.sdfg.validate()
    for ours, theirs in zip(values(network, x, *channels, weight), expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)
