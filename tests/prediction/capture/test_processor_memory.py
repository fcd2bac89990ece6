"""Memory of a step on a processor: predicted from shapes, beside what torch's profiler counts."""

from __future__ import annotations

import itertools
import json
import platform
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from daceml.prediction.capture.module import capture_step
from daceml.prediction.model_steps.predict_step import captured
from daceml.prediction.model_steps.step_allocations import memory_in_order
from tests.support.golden import golden
from tests.support.sampling import sampled


class Perceptron(nn.Module):
    """Three layers."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 256), nn.Linear(256, 8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.net(x)


class Convolutions(nn.Module):
    """Strided, grouped, transposed and pointwise."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(16)
        self.down = nn.Conv2d(16, 48, 3, stride=2, padding=1)
        self.grouped = nn.Conv2d(48, 48, 3, padding=1, groups=48)
        self.point = nn.Conv2d(48, 32, 1)
        self.up = nn.ConvTranspose2d(32, 16, 2, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.up(self.point(self.grouped(self.down(torch.relu(self.norm(self.stem(x)))))))


class Signals(nn.Module):
    """Convolutions of one and of three dimensions."""

    def __init__(self) -> None:
        super().__init__()
        self.line = nn.Sequential(nn.Conv1d(16, 32, 5, padding=2), nn.ReLU(), nn.Conv1d(32, 32, 3, stride=2))
        self.space = nn.Conv3d(16, 32, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.line(x).square().mean() + self.space(x.view(4, 16, 8, 8, 8)).square().mean()


class Attention(nn.Module):
    """A transformer's layer with dropout, and a product whose gradient is expanded."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(100, 32)
        self.layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.1, batch_first=True)
        self.head = nn.Linear(32, 100)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.layer(self.embed(x)))


X = torch.randn(128, 64)
MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[], torch.Tensor]]] = {
    "perceptron": (Perceptron, lambda: torch.randn(128, 64)),
    "convolutions": (Convolutions, lambda: torch.randn(4, 3, 24, 24)),
    "channels last": (
        lambda: nn.Sequential(nn.Conv2d(16, 32, 3), nn.Conv2d(32, 32, 3)).to(
            memory_format=torch.channels_last
        ),
        lambda: torch.randn(4, 16, 24, 24).to(memory_format=torch.channels_last),
    ),
    "signals": (Signals, lambda: torch.randn(4, 16, 512)),
    "attention": (Attention, lambda: torch.randint(0, 100, (8, 16))),
}
COPIED = ("convolutions", "channels last", "signals")
OPTIMIZERS: dict[str, Any] = {
    "sgd": lambda weights: torch.optim.SGD(weights, lr=0.1),
    "adam": torch.optim.Adam,
}


def measured_peak(model: Callable[[], nn.Module], x: Any, optimizer: Any, file: Path) -> int:
    """Of the last of three steps, counted from before the model was made."""
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities, profile_memory=True, acc_events=True) as profiler:
        made, given = model(), x()
        update = optimizer(made.parameters())
        for step in range(3):
            with torch.profiler.record_function(f"step {step}"):
                update.zero_grad()
                made(given).sum().backward()
                update.step()
    profiler.export_chrome_trace(str(file))
    events = json.loads(file.read_text(encoding="utf-8"))["traceEvents"]
    (last,) = (one for one in events if one.get("name") == "step 2" and one["ph"] == "X")
    held = peak = 0
    memory = [one for one in events if one.get("name") == "[memory]"]
    for one in sorted(memory, key=lambda one: (one["ts"], one["args"]["Ev Idx"])):
        held += one["args"]["Bytes"]
        if last["ts"] <= one["ts"] <= last["ts"] + last["dur"]:
            peak = max(peak, held)
    return peak


# Each model once, and both optimizers
QUICK = [("perceptron", "sgd"), ("attention", "adam"), *((name, "sgd") for name in COPIED)]


@pytest.mark.parametrize(
    ("name", "optimizer"),
    sampled(itertools.product(MODELS, OPTIMIZERS), ("perceptron", "adam"), *QUICK),
)
def test_the_peak_of_a_training_step_is_what_a_profiler_counts(name: str, optimizer: str, tmp_path: Path):
    if name in COPIED and platform.machine() != "x86_64":
        pytest.skip("what convolutions copy is known of oneDNN on x86 only")
    model, x = MODELS[name]
    measured = measured_peak(model, x, OPTIMIZERS[optimizer], tmp_path / "run.json")
    step = capture_step(model(), (x(),), optimizer=OPTIMIZERS[optimizer], processor=True)
    assert step.memory is not None
    # what is promised; with AVX-512 they are equal but for a few bytes of the profiler's own
    assert step.memory.peak == pytest.approx(measured, rel=0.05)


def test_blocks_add_up_to_the_peak():
    step = captured(Convolutions(), torch.randn(4, 3, 24, 24), processor=True)
    assert step.memory is not None and step.memory.allocations is not None
    held = memory_in_order(step)
    assert held.peak_bytes == step.memory.peak
    assert step.operations[int(held.peak_us)].operation.operator == "aten::convolution_backward"


def test_a_device_updates_all_parameters_at_once():
    names = [
        {
            one.operation.operator
            for one in captured(Perceptron(), X, optimizer="sgd", processor=place).operations
        }
        for place in (False, True)
    ]
    assert "aten::_foreach_add_" in names[0] - names[1]
    assert "aten::add_" in names[1]


def test_memory_that_nobody_tells_is_said():
    step = captured(nn.LSTM(16, 16, batch_first=True), torch.randn(2, 4, 16), processor=True)
    (note,) = [note for note in step.notes if "oneDNN" in note]
    assert note == golden()
    step = captured(nn.LSTM(16, 16, batch_first=True), torch.randn(2, 4, 16))
    assert not any("oneDNN" in note for note in step.notes)
