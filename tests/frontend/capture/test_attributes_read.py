"""Attributes guard a program where forward reads them, and nowhere else."""

from __future__ import annotations

import copy
import logging
from typing import Any

import pytest
import torch
from torch import nn

import daceml
from daceml.config import config
from daceml.module.module import DaceModule
from tests.support.golden import golden


class Inner(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale, self.calls = 2.0, 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.scale


class Trained(nn.Module):
    """What training loops hang on a module, besides what forward reads."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.best, self.temperature = Inner(), 0.0, 1.0
        self.history: list[float] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.inner(x) * self.temperature
        return y + self.offset if hasattr(self, "offset") else y


def compiled(module: nn.Module, **options: Any) -> DaceModule:
    found = daceml.compile(module, **{"backward": False, "fullgraph": True, **options})
    assert isinstance(found, DaceModule)
    return found


def agree(module: nn.Module, eager: nn.Module) -> None:
    x = torch.randn(3)
    torch.testing.assert_close(module(x), eager(x))


def test_what_forward_does_not_read_is_no_guard():
    eager = Trained()
    module = compiled(eager)
    for step in range(12):
        agree(module, eager)
        module.best, module.inner.calls, module.epoch = 1.0 / (step + 1), step, step
        module.history.append(float(step))
        setattr(module, f"metric_{step}", step)
        if step:
            delattr(module, f"metric_{step - 1}")
    assert len(module.session.variants) == 1


def test_what_forward_reads_or_misses_is_one():
    eager = Trained()
    module = compiled(eager)
    agree(module, eager)
    module.temperature = 3.0
    agree(module, eager)
    module.inner.scale = 5.0
    agree(module, eager)
    del module.best
    module.offset = 7.0  # as many attributes as before
    agree(module, eager)
    assert len(module.session.variants) == 4


class AsAWhole(nn.Module):
    """It reads its attributes in ways that name none of them."""

    def __init__(self, way: Any) -> None:
        super().__init__()
        self.way, self.scale = way, 2.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.way(self)


WAYS = {
    "__dict__": lambda module: module.__dict__["scale"],
    "vars": lambda module: vars(module)["scale"],
    "getattr": lambda module: getattr(module, "sca" + "le"),
    "a copy": lambda module: copy.copy(module).scale,
}


@pytest.mark.parametrize("way", WAYS)
def test_reads_that_name_nothing_are_of_everything(way: str):
    eager = AsAWhole(WAYS[way])
    module = compiled(eager)
    for scale in (2.0, 3.0):
        module.scale = scale
        agree(module, eager)


class Branches(nn.Module):
    """torch.cond lets Dynamo trace its branches."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = 2.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, lambda x: x * self.scale, lambda x: x - 1, (x,))


def test_reads_within_dynamo_count():
    eager = Branches()
    module = compiled(eager, fullgraph=False)
    for scale in (2.0, 3.0):
        module.scale = scale
        agree(module, eager)


def test_values_that_were_seen_run_compiled_after_the_limit(caplog: pytest.LogCaptureFixture):
    eager = Trained()
    module = compiled(eager)
    limit = config().recompile_limit
    with caplog.at_level(logging.WARNING, logger="daceml"):
        for temperature in range(limit + 3):
            module.temperature = float(temperature)
            agree(module, eager)
    (message,) = caplog.messages
    assert "temperature" in message and "DACEML_RECOMPILE_LIMIT" in message and message == golden()
    variants = module.session.variants
    assert len(variants) == limit
    for temperature in range(limit):
        module.temperature = float(f"{temperature}.0")  # another object of the same value
        assert module.session.variant((torch.randn(3),), {})[0] in variants
        agree(module, eager)
    assert module.session.variants == variants
