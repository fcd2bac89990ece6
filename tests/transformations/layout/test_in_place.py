"""write_in_place: what a call gives and one loop reads is written over, and nothing else is."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import daceml
from daceml.compiler.pipeline import onnx_network
from daceml.compiler.stages.lowered_network import optimise
from daceml.compiler.stages.stage_timer import Stages
from daceml.frontend.onnx_export.export import export_program
from daceml.sdfg.passes import PassRecord
from tests.support.golden import golden
from tests.support.sampling import sampled


class Block(nn.Module):
    """Convolutions with batch norm, activations and a residual sum."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(16, 32, 3, padding=1)
        self.norm = nn.BatchNorm2d(32)
        self.second = nn.Conv2d(32, 32, 1, bias=False)
        self.depthwise = nn.Conv2d(32, 32, 3, padding=2, dilation=2, groups=32)
        nn.init.uniform_(self.norm.running_var, 0.5, 2)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = torch.relu(self.norm(self.first(x)))
        y = torch.relu(self.second(x) + x)
        z = nn.functional.relu6(self.depthwise(y))
        w = torch.sigmoid(z) * z
        return self.second(w) + y, w.mean((2, 3))


def record(module: nn.Module, *shape: int) -> PassRecord:
    with torch.no_grad():
        network = onnx_network(export_program(module.eval(), (torch.ones(shape),)), Stages())
        network.live = True  # activations stay loops
        passes = optimise(network, Stages()).network.passes
    return next(p for p in passes if p.name == "write_in_place")


def test_three_activations_are_written_over_their_convolutions() -> None:
    found = record(Block(), 2, 16, 41, 37)
    assert found.applied == {"write_in_place": 3}
    (refusal,) = found.refused
    assert refusal.reason == golden()
    assert "caller" in refusal.reason, "the sum is a result"


@pytest.mark.parametrize("freeze", sampled([False, True], False))
def test_numbers_are_those_of_torch_at_every_size(freeze: bool) -> None:
    module = Block().eval()
    compiled = daceml.compile(module, backward=False, freeze=freeze)
    for batch, height, width in ((2, 41, 37), (1, 41, 37), (2, 5, 6), (2, 41, 37)):
        x = torch.randn(batch, 16, height, width)
        x[0, 3, 2, 4], x[0, 1, 4, 1] = float("nan"), float("inf")
        with torch.no_grad():
            for ours, eager in zip(compiled(x), module(x), strict=True):
                # sums of 288 products in another order
                torch.testing.assert_close(ours, eager, equal_nan=True, rtol=1e-4, atol=1e-5)


class Twice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(16, 32, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.conv(x)
        return self.conv(torch.relu(y)[:, :16]) + y[:, :, 2:, 2:].tanh()


class Mirrored(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(16, 16, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.conv(x)
        return self.conv(y + y.flip(2))


class Summed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(16, 16, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.conv(torch.softmax(self.conv(x), 1))


@pytest.mark.parametrize(
    ("module", "fact"),
    [(Twice(), "steps"), (Mirrored(), "elements other"), (Summed(), "once")],
    ids=["twice", "mirrored", "summed"],
)
def test_what_needs_memory_of_its_own(module: nn.Module, fact: str) -> None:
    found = record(module, 2, 16, 30, 30)
    assert not found.applied
    said = "\n".join(refusal.reason for refusal in found.refused)
    assert said == golden()
    assert fact in said
    x = torch.randn(2, 16, 30, 30)
    with torch.no_grad():
        torch.testing.assert_close(daceml.compile(module)(x), module(x), rtol=1e-4, atol=1e-5)
