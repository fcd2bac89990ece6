"""compile_step's update: in place, one kernel, for parameters and optimizers in every state."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

import daceml
from daceml.errors import CallError, ConfigurationError, PositionError
from tests.support.golden import golden, raises

Between = Callable[[int, nn.Module, torch.optim.Optimizer], None]
BOUND = 1e-11
"""Some hundred roundings of float64 around 1."""


class Odd(nn.Module):
    """Parameters in every layout: rows, transposed, with gaps, of rank 0, large, used twice, unused."""

    def __init__(self) -> None:
        super().__init__()
        self.gaps = nn.Parameter(torch.randn(3, 10, dtype=torch.float64)[:, ::2])
        self.turned = nn.Parameter(torch.randn(4, 5, dtype=torch.float64).t())
        self.scale = nn.Parameter(torch.tensor(1.5, dtype=torch.float64))
        self.wide = nn.Parameter(torch.randn(2, 5000, dtype=torch.float64) / 100)
        self.unused = nn.Parameter(torch.ones(2, dtype=torch.float64))
        self.tied = nn.Linear(4, 4).double()
        self.also = nn.Linear(4, 4, bias=False).double()
        self.also.weight = self.tied.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.also(torch.tanh(self.tied(x @ self.gaps @ self.turned)))
        return y[:, :2] * self.scale + (y[:, 2:] @ self.wide).mean()


def batch(number: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(number)
    return tuple(torch.randn(4, n, dtype=torch.float64, generator=generator) for n in (3, 2))  # pyright: ignore


def steps(
    module: nn.Module,
    make: Callable[[Any], torch.optim.Optimizer],
    count: int,
    between: Between | None = None,
) -> Any:
    """Compiled steps beside eager ones: loss, parameters and the optimizer's state are the same."""
    eager = copy.deepcopy(module)
    optimizer, reference = make(module), make(eager)
    step = daceml.compile_step(module, functional.mse_loss, optimizer)
    for number in range(count):
        for both in ((module, optimizer), (eager, reference)):
            if between is not None:
                between(number, *both)
        x, y = batch(number)
        loss = step(x, y)
        reference.zero_grad()
        expected = functional.mse_loss(eager(x), y)
        expected.backward()
        reference.step()
        torch.testing.assert_close(loss, expected.detach(), rtol=BOUND, atol=BOUND)
        torch.testing.assert_close(module.state_dict(), eager.state_dict(), rtol=BOUND, atol=BOUND)
        ours, theirs = optimizer.state_dict()["state"], reference.state_dict()["state"]
        torch.testing.assert_close(ours, theirs, rtol=BOUND, atol=BOUND)
    return step


def odd() -> Odd:
    torch.manual_seed(0)
    return Odd()


def program(step: Any) -> Any:
    """The manifest of the program that was compiled last."""
    return list(step._programs.values())[-1].stored.manifest


def test_parameters_in_every_layout_are_updated_in_place_by_one_kernel():
    made = odd()
    before = {name: p.data_ptr() for name, p in made.named_parameters()}
    step = steps(made, lambda m: torch.optim.Adam(m.parameters(), lr=0.01, amsgrad=True, weight_decay=0.1), 2)
    assert before == {name: p.data_ptr() for name, p in made.named_parameters()}
    updates = [s for s in program(step).steps if "update" in s.label]
    assert [s.kind for s in updates] == ["kernel"]
    # nothing is copied of what lies in memory as its gradient does
    assert not [s for s in program(step).steps if "wide" in s.label and "reorder" in s.label]


def test_a_scheduler_a_loaded_state_and_a_group_that_comes_later():
    def between(number: int, module: nn.Module, optimizer: Any) -> None:
        if number == 0:
            optimizer.schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
            return
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            optimizer.schedule.step()
        if number == 1:
            state = copy.deepcopy(optimizer.state_dict())
            for held in state["state"].values():
                held["exp_avg"] *= 2
                held["step"] += 3
            optimizer.load_state_dict(state)
        if number == 2:
            optimizer.add_param_group({"params": [module.scale], "betas": (0.5, 0.6), "maximize": True})

    # a float32 rate would make eager compute its factors in float32
    rate = torch.tensor(0.1, dtype=torch.float64)
    step = steps(odd(), lambda m: torch.optim.AdamW([m.gaps, m.wide], lr=rate.clone()), 4, between)
    assert len(step._programs) == 2, "one without the later group, one with it"


@pytest.mark.parametrize(
    "make",
    [
        lambda m: torch.optim.Adam(m.parameters(), lr=0.01),
        pytest.param(
            lambda m: torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9, dampening=0.3),
            marks=pytest.mark.slow,
        ),
    ],
    ids=["adam", "sgd"],
)
def test_a_parameter_that_thaws_later_counts_its_own_steps(make: Any):
    def between(number: int, module: Any, optimizer: Any) -> None:
        module.scale.requires_grad_(number >= 1)

    step = steps(odd(), make, 3, between)
    rows, _ = program(step).inputs[-1].shape
    # those from the beginning, and the one that came later
    assert rows == 2


def test_a_step_that_fails_leaves_everything_as_it_was():
    torch.manual_seed(0)
    module = nn.Sequential(nn.Embedding(5, 3), nn.Flatten(), nn.Linear(6, 2)).double()
    optimizer = torch.optim.Adam(module.parameters(), lr=0.1)
    step = daceml.compile_step(module, functional.mse_loss, optimizer)
    target = torch.zeros(1, 2, dtype=torch.float64)
    for _ in range(2):
        before = copy.deepcopy((module.state_dict(), optimizer.state_dict()["state"]))
        with raises(PositionError, "[0, 5)", "model.0", "Gather", exact=False) as refusal:
            step(torch.tensor([[0, 9]]), target)
        assert refusal.value.why == golden()
        now = (module.state_dict(), optimizer.state_dict()["state"])
        torch.testing.assert_close(now, before, rtol=0, atol=0)
        step(torch.tensor([[0, 1]]), target)
    assert optimizer.state_dict()["state"][0]["step"] == 2


@pytest.mark.parametrize(
    "loss", [functional.cross_entropy, nn.CrossEntropyLoss()], ids=["function", "module"]
)
def test_a_target_that_is_no_class_is_named_with_its_value(loss: Any):
    module = nn.Linear(3, 4)
    step = daceml.compile_step(module, loss, torch.optim.SGD(module.parameters(), lr=0.1))
    with raises(PositionError, "[0, 4): 7 in loss, node SoftmaxCrossEntropyLoss", exact=False):
        step(torch.zeros(2, 3), torch.tensor([1, 7]))


def test_element_types_in_one_model():
    torch.manual_seed(0)
    module = nn.ModuleList([nn.Linear(3, 4), nn.Linear(4, 2).double(), nn.Linear(2, 2).bfloat16()])

    class Cast(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = module

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.layers[1](torch.tanh(self.layers[0](x)).double())
            return self.layers[2](x.bfloat16()).float()

    made = Cast()
    eager = copy.deepcopy(made)
    optimizer, reference = (torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9) for m in (made, eager))
    step = daceml.compile_step(made, functional.mse_loss, optimizer)
    x, y = torch.randn(4, 3), torch.randn(4, 2)
    for _ in range(2):
        loss = step(x, y)
        reference.zero_grad()
        expected = functional.mse_loss(eager(x), y)
        expected.backward()
        reference.step()
        # bfloat16 has 8 bits, and the gradients of all layers come through it
        torch.testing.assert_close(loss, expected.detach(), rtol=0.02, atol=0.02)
        torch.testing.assert_close(made.state_dict(), eager.state_dict(), rtol=0.02, atol=0.02)
    assert sum("update" in s.label for s in program(step).steps) == 3, "one kernel for each type"


def test_what_a_step_would_pass_over_is_refused():
    def attempt(change: Callable[[nn.Linear, torch.optim.Optimizer], object]) -> None:
        module = nn.Linear(2, 2)
        optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
        change(module, optimizer)
        daceml.compile_step(module, functional.mse_loss, optimizer)

    with raises(ConfigurationError, "the optimizer", "hooks"):
        attempt(lambda _, optimizer: optimizer.register_step_pre_hook(lambda *_: None))
    with raises(ConfigurationError, "a parameter", "hooks"):
        attempt(lambda module, _: module.weight.register_hook(lambda g: g))
    with raises(ConfigurationError, "a parameter", "hooks"):
        attempt(lambda module, _: module.weight.register_post_accumulate_grad_hook(lambda p: None))
    module = nn.Linear(2, 2)
    step = daceml.compile_step(module, functional.mse_loss, torch.optim.SGD(module.parameters(), lr=0.1))
    x = torch.zeros(1, 2)
    with (
        torch.autocast("cpu", dtype=torch.bfloat16),
        raises(CallError, "autocast"),
    ):
        step(x, x)
    layers = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    layers[1].weight.data = layers[0].weight.data
    layers[1].weight.requires_grad_(False)
    step = daceml.compile_step(layers, functional.mse_loss, torch.optim.SGD(layers.parameters(), lr=0.1))
    with raises(ConfigurationError, "'model.0.weight'", "'model.1.weight'", "memory"):
        step(x, x)


class Lookups(nn.Module):
    """Parameters whose gradients are scatters: a loop that reads its target while it writes it."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.columns = nn.Embedding(7, 3), nn.Parameter(torch.randn(5, 3))

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return self.table(rows) * torch.gather(self.columns, 0, (rows % 5)[:, None].expand(-1, 3))


def test_parameters_whose_gradients_are_scatters_are_updated():
    theirs, rows = Lookups().double(), torch.arange(11) % 7
    ours, target = copy.deepcopy(theirs), torch.randn(11, 3, dtype=torch.float64)
    optimizers = [torch.optim.Adam(module.parameters(), lr=0.1) for module in (theirs, ours)]
    step = daceml.compile_step(ours, functional.mse_loss, optimizers[1])
    for _ in range(3):
        optimizers[0].zero_grad()
        functional.mse_loss(theirs(rows), target).backward()
        optimizers[0].step()
        step(rows, target)
    for mine, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-9, atol=1e-10)
