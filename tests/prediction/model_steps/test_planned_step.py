"""A step from shapes as a chain of computations."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from daceml.devices.catalogue import find_device
from daceml.errors import StrategyError
from daceml.operations.duration_chain import DurationLadder
from daceml.prediction.model_steps.planned_step import planned_step
from daceml.prediction.model_steps.predict_step import captured
from daceml.prediction.model_steps.step_durations import step_durations
from daceml.simulation.distributed.strategy.coarsened import coarsened
from daceml.simulation.distributed.strategy.training_step import Part
from tests.support.golden import raises

DEVICE = find_device("V100-SXM2-32GB")


class Net(nn.Module):
    """Parameters that are used twice, and chains of loops."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(64, 64), nn.Linear(64, 64)
        self.norm = nn.LayerNorm(64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.tanh(torch.relu(self.first(x)) * 2)
        return self.second(self.norm(self.first(y)))


def planned(model: nn.Module | None = None, *, train: bool = True):
    step = captured(Net() if model is None else model, torch.empty(256, 64), train=train)
    durations = step_durations(step, DEVICE, DurationLadder(None))
    return planned_step(step, durations, DEVICE, devices=4), durations


def test_every_gradient_ends_somewhere_and_no_time_is_lost():
    found, durations = planned()
    training = found.training
    names = [name for one in training.computations for name in one.parameters]
    assert sorted(names) == sorted(dict(Net().named_parameters()))
    assert training.gradient_bytes == sum(p.numel() * 4 for p in Net().parameters())
    assert training.computing_us == pytest.approx(durations.likely_us.sum())
    assert training.memory is not None
    assert all(one.gradient_bytes == 0 for one in training.computations if one.part is Part.FORWARD)
    assert {one.product for one in training.computations if "addmm" in one.name} == {True}


def test_loops_that_read_each_other_are_one_kernel():
    found, _ = planned()
    computations = found.training.computations
    relu = next(i for i, one in enumerate(computations) if one.name.startswith("aten::relu"))
    chain = computations[relu : relu + 3]
    fused_us = found.fused_us(chain)
    assert fused_us is not None
    assert max(one.duration_us for one in chain) <= fused_us < sum(one.duration_us for one in chain)
    assert found.fused_us(computations[relu - 1 : relu + 1]) is None, "a product joins nothing"


def test_the_coarsened_step_is_as_long_as_its_kernels():
    found, _ = planned()
    coarse = coarsened(found.training, found.fused_us)
    producers = sum(one.gradient_bytes > 0 for one in found.training.computations)
    assert len(coarse.computations) <= producers + 2
    assert coarse.computing_us < found.training.computing_us
    assert coarse.gradient_bytes == found.training.gradient_bytes


def test_what_does_not_train_has_no_plan():
    with raises(StrategyError):
        planned(train=False)
