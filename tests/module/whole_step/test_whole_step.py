"""compile_step: forward, loss, backward and update as one program, against the steps of eager PyTorch."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

import daceml
from daceml.errors import CallError, ConfigurationError, GradientError
from tests.support.golden import raises
from tests.support.sampling import sampled

Make = Callable[[nn.Module], torch.optim.Optimizer]


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(36, 5)
    ).double()


def batches(count: int):
    generator = torch.Generator().manual_seed(3)
    for _ in range(count):
        x = torch.randn(6, 3, 3, 3, dtype=torch.float64, generator=generator)
        yield x, torch.randint(0, 5, (6,), generator=generator)


def compare(module: nn.Module, make: Make, bound: float, steps: int = 4) -> torch.optim.Optimizer:
    """Step by step: loss, parameters, buffers and the optimizer's state are eager's within a bound."""
    eager = copy.deepcopy(module)
    optimizer, reference = make(module), make(eager)
    step = daceml.compile_step(module, functional.cross_entropy, optimizer)
    for x, y in batches(steps):
        loss = step(x, y)
        reference.zero_grad()
        expected = functional.cross_entropy(eager(x), y)
        expected.backward()
        reference.step()
        for both in (optimizer, reference):  # a scheduler at work
            both.param_groups[0]["lr"] *= 0.9
        torch.testing.assert_close(loss, expected.detach(), rtol=0, atol=bound)
        torch.testing.assert_close(module.state_dict(), eager.state_dict(), rtol=0, atol=bound)
    ours, theirs = optimizer.state_dict()["state"], reference.state_dict()["state"]
    for number, state in theirs.items():
        for name, value in state.items():
            torch.testing.assert_close(ours[number][name], value, rtol=0, atol=bound)
    return optimizer


OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "sgd": lambda m: torch.optim.SGD(m.parameters(), lr=0.1, weight_decay=0.01),
    "momentum": lambda m: torch.optim.SGD(
        m.parameters(), lr=0.1, momentum=0.9, weight_decay=0.01, dampening=0.1
    ),
    "nesterov": lambda m: torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9, nesterov=True, maximize=True),
    "adam": lambda m: torch.optim.Adam(m.parameters(), lr=0.01, weight_decay=0.01),
    "adamw in groups": lambda m: torch.optim.AdamW(
        [{"params": m[0].parameters(), "lr": 0.02}, {"params": m[4].parameters()}], lr=0.01
    ),
}


@pytest.mark.parametrize("name", sampled(OPTIMIZERS, "momentum", "nesterov", "adamw in groups"))
def test_steps_are_those_of_the_optimizer(name: str) -> None:
    # float64 numbers around 1; Adam divides the rounding errors that a convolution's bias before a batch norm
    # has for its gradient by about 1e-8
    compare(network(), OPTIMIZERS[name], 1e-8 if "adam" in name else 1e-13)


def test_frozen_parameters_stay_and_thawed_ones_move() -> None:
    module = network()
    module[0].requires_grad_(False)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    step = daceml.compile_step(module, functional.cross_entropy, optimizer)
    before = module[0].weight.clone()
    ((x, y),) = batches(1)
    step(x, y)
    assert torch.equal(module[0].weight, before)
    module[0].requires_grad_(True)
    step(x, y)
    assert not torch.equal(module[0].weight, before)


def test_a_loaded_state_is_continued() -> None:
    module = network()
    optimizer = torch.optim.Adam(module.parameters(), lr=0.01)
    step = daceml.compile_step(module, functional.cross_entropy, optimizer)
    data = list(batches(3))
    step(*data[0])
    twin = copy.deepcopy(module)
    resumed = torch.optim.Adam(twin.parameters(), lr=0.01)
    resumed.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    again = daceml.compile_step(twin, functional.cross_entropy, resumed)
    for x, y in data[1:]:
        assert torch.equal(step(x, y), again(x, y))
    assert resumed.state_dict()["state"][0]["step"] == 3


def test_versions_of_parameters_are_counted() -> None:
    module = network()
    step = daceml.compile_step(module, functional.cross_entropy, torch.optim.SGD(module.parameters(), lr=0.1))
    before = module[0].weight._version
    step(*next(iter(batches(1))))
    assert module[0].weight._version > before


def test_a_copy_of_a_step_trains_a_copy_of_the_model() -> None:
    module = network()
    optimizer = torch.optim.AdamW(module.parameters(), lr=0.1)
    step = daceml.compile_step(module, functional.cross_entropy, optimizer)
    first, second = batches(2)
    step(*first)
    copied = copy.deepcopy(step)
    before = copy.deepcopy(module.state_dict())
    loss = copied(*second)
    torch.testing.assert_close(module.state_dict(), before, rtol=0, atol=0)
    assert torch.equal(loss, step(*second))
    theirs = copied.module.model.state_dict()
    torch.testing.assert_close(module.state_dict(), theirs, rtol=0, atol=0)


class Recurrent(nn.Module):
    """Its layer lists its own parameters; a plain tensor stands beside it."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.LSTM(3, 4)
        self.scale = torch.ones(4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x)[0] * self.scale


def test_new_values_need_no_new_program() -> None:
    module = Recurrent()
    step = daceml.compile_step(module, functional.mse_loss, torch.optim.SGD(module.parameters(), lr=0.1))
    x, y = torch.randn(5, 2, 3), torch.zeros(5, 2, 4)
    step(x, y)
    ((known),) = step._programs.values()
    for _ in range(2):
        module.scale.mul_(0.5)
        with torch.no_grad():
            expected = functional.mse_loss(module(x), y)
        # some roundings of float32 in numbers below 1
        torch.testing.assert_close(step(x, y), expected, rtol=1e-5, atol=1e-6)
    assert list(step._programs.values()) == [known]
    assert step._programs[next(iter(step._programs))].watch is known.watch


@pytest.mark.parametrize(
    ("name", "wrong", "what"),
    [
        ("model", nn.Linear, "class Linear"),
        ("loss", None, "None"),
        ("loss", nn.MSELoss, "class MSELoss"),
        ("loss", torch.optim.SGD([torch.zeros(1)], lr=0.1), "type SGD"),
        ("optimizer", functional.mse_loss, "type function"),
        ("optimizer", torch.optim.SGD, "class SGD"),
    ],
    ids=[
        "class of a model",
        "no loss",
        "class of a loss",
        "no function",
        "no optimizer",
        "class of an optimizer",
    ],
)
def test_something_else_than_model_loss_and_optimizer_is_refused(name: str, wrong: object, what: str) -> None:
    module = network()
    right = {
        "model": module,
        "loss": functional.cross_entropy,
        "optimizer": torch.optim.SGD(module.parameters()),
    }
    with raises(ConfigurationError, what, "compile_step(model, loss, optimizer)") as caught:
        daceml.compile_step(**(right | {name: wrong}))  # pyright: ignore
    assert name in caught.value.what and what in caught.value.why


@pytest.mark.parametrize(
    ("result", "kind"),
    [
        (lambda loss: loss.item(), "Python"),
        (lambda loss: None, "Python"),
        (lambda loss: (loss, 1), "tuple"),
        (lambda loss: {"loss": loss}, "dict"),
    ],
    ids=["item", "none", "tuple", "dict"],
)
def test_a_loss_that_is_no_tensor_is_refused(result: Callable[[torch.Tensor], object], kind: str) -> None:
    module = network()
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    step = daceml.compile_step(module, lambda out, y: result(functional.cross_entropy(out, y)), optimizer)  # pyright: ignore
    with raises(CallError, "loss", kind, ".item()"):
        step(*next(iter(batches(1))))


def test_what_cannot_be_a_step_is_refused() -> None:
    module = network()
    ((x, y),) = batches(1)
    with raises(ConfigurationError, "RMSprop", "SGD", "AdamW"):
        daceml.compile_step(module, functional.cross_entropy, torch.optim.RMSprop(module.parameters()))
    with raises(ConfigurationError, "Adam", "differentiable=True"):
        daceml.compile_step(
            module, functional.cross_entropy, torch.optim.Adam(module.parameters(), differentiable=True)
        )
    with raises(ConfigurationError, "optimizer", "parameters"):
        daceml.compile_step(module, functional.cross_entropy, torch.optim.SGD(network().parameters(), lr=0.1))
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    with raises(CallError, "scalar", "[6, 5]"):
        daceml.compile_step(module, lambda out, y: out, optimizer)(x, y)
    with raises(CallError, "int64"):
        daceml.compile_step(module, lambda out, y: (out.argmax(1) == y).sum(), optimizer)(x, y)
    with raises(GradientError, "requires_grad"):
        daceml.compile_step(module, lambda out, y: out.detach().sum(), optimizer)(x, y)
