"""keep_images: views between rows and images go to the side of the rows, and values stay."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn import functional

import daceml
from daceml.sdfg.network import Network
from tests.support.tensor_functions import optimised

Function = Callable[[torch.Tensor], torch.Tensor]


class Mixing(nn.Module):
    """The feed-forward layer of SegFormer: rows, an image for a depthwise convolution, rows."""

    def __init__(self, width: int, height: int, columns: int) -> None:
        super().__init__()
        self.grow, self.shrink = nn.Linear(8, width), nn.Linear(width, 8)
        self.convolution = nn.Conv2d(width, width, 3, padding=1, groups=width)
        self.size = (width, height, columns)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        image = self.grow(x).transpose(1, 2).reshape(x.shape[0], *self.size)
        rows = self.convolution(image).flatten(2).transpose(1, 2)
        return self.shrink(functional.gelu(rows))


class Patches(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.convolution, self.norm = nn.Conv2d(3, 24, 4, 4), nn.BatchNorm2d(24)
        self.linear = nn.Linear(24, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = functional.hardswish(self.norm(self.convolution(x))).flatten(2).transpose(1, 2)
        return self.linear(rows.clamp(-1, 2))


def moved(network: Network) -> int:
    (record,) = (p for p in network.passes if p.name == "keep_images")
    return record.applied.get("views of images", 0)


MODULES: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], int]] = {
    "feed forward": (lambda: Mixing(40, 6, 7), (3, 42, 8), 2),
    "one image": (lambda: Mixing(40, 6, 7), (1, 42, 8), 2),
    "a row of pixels": (lambda: Mixing(40, 1, 42), (2, 42, 8), 2),
    "one channel": (lambda: Mixing(1, 6, 7), (2, 42, 8), 2),
    "patches": (Patches, (2, 3, 20, 28), 1),
}


@pytest.mark.parametrize("name", MODULES)
def test_values_are_those_of_torch(name: str):
    build, shape, views = MODULES[name]
    torch.manual_seed(0)
    module = build().eval()
    x = torch.randn(shape)
    compiled = daceml.compile(module)
    with torch.no_grad():
        expected = module.double()(x.double())
        module.float()
        assert (compiled(x).double() - expected).abs().max() < 1e-5
        told = " ".join(str(daceml.explain(compiled, x)).split())
    assert ("views of images" in told) == bool(views)


def joined(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return functional.conv2d(x.transpose(1, 2).reshape(2, 8, 6, 7), w).flatten(2).transpose(1, 2).sin()


def test_what_others_read_stays():
    def read_twice(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        turned = x.transpose(1, 2)
        return functional.conv2d(turned.reshape(2, 8, 6, 7), w), turned

    def crossed(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return functional.conv2d(x.transpose(1, 2).reshape(2, 4, 12, 7), w)

    shapes = (2, 42, 8), (8, 8, 3, 3)
    assert moved(optimised(joined, *shapes)) == 2
    assert moved(optimised(read_twice, *shapes)) == 0
    assert moved(optimised(crossed, (2, 42, 8), (8, 4, 3, 3))) == 0, "rows take a part of the channels"
    assert moved(optimised(lambda x: x.transpose(1, 2).reshape(2, 8, 6, 7).exp(), (2, 42, 8))) == 0


def test_an_open_batch_and_gradients():
    torch.manual_seed(0)
    module = Mixing(24, 5, 6)
    compiled = daceml.compile(module, dynamic=True)
    for batch in (2, 3, 1):
        x = torch.randn(batch, 30, 8)
        with torch.no_grad():
            assert torch.allclose(compiled(x), module(x), atol=1e-5)
        y = x.clone().requires_grad_()
        x.requires_grad_()
        compiled(x).square().sum().backward()
        module(y).square().sum().backward()
        assert x.grad is not None and y.grad is not None and torch.allclose(x.grad, y.grad, atol=1e-4)
