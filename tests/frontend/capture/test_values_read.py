"""Numbers that forward reads from tensors: they stay tensors, or are constants that guard the variant."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812  torch's own name for it

import daceml
from daceml.errors import CallError, DeploymentError, ExportError
from daceml.module.module import DaceModule
from tests.support.golden import raises


class Reads(nn.Module):
    """Gives `use` its argument and its own tensors."""

    def __init__(self, use: Callable[[Any, torch.Tensor, torch.Tensor], Any]) -> None:
        super().__init__()
        self.use, self.linear, self.temperature = use, nn.Linear(8, 8), nn.Parameter(torch.tensor(0.5))
        self.register_buffer("eps", torch.tensor(1e-3))
        self.register_buffer("step", torch.tensor(1))
        self.register_buffer("rates", torch.tensor([0.25, 0.5]))
        self.rate = torch.tensor([0.75])

    def forward(self, x: torch.Tensor, number: torch.Tensor) -> Any:
        return self.use(self, self.linear(x), number)


def compiled(
    use: Callable[[Any, torch.Tensor, torch.Tensor], Any], **options: Any
) -> tuple[DaceModule, Reads]:
    eager = Reads(use)
    module = daceml.compile(eager, **{"fullgraph": False, **options})
    assert isinstance(module, DaceModule)
    return module, eager


def equal(module: DaceModule, eager: Reads, number: torch.Tensor, *, rows: int = 4) -> None:
    """Results and gradients."""
    x = torch.randn(rows, 8)
    ours, theirs = module(x, number), eager(x, number)
    torch.testing.assert_close(ours, theirs, equal_nan=True)
    found = []
    for result in (ours, theirs):
        eager.zero_grad()
        first = result[0] if isinstance(result, tuple) else result
        if first.requires_grad:
            first.square().sum().backward()
        found.append([p.grad for p in eager.parameters()])
    torch.testing.assert_close(*found, equal_nan=True)


VALUES: dict[str, Callable[[Any, torch.Tensor, torch.Tensor], Any]] = {
    "operand": lambda m, y, n: y * n.item() + m.eps.item(),
    "in place": lambda m, y, n: y.clone().mul_(n.item()).clamp(max=n.item()),
    "arithmetic": lambda m, y, n: y / (n.item() * 2 + 1) - m.step.item(),
    "whole numbers": lambda m, y, n: (y, (y * 9).long() * (m.step.item() * 3 + 1)),
    "full": lambda m, y, n: (
        y,
        torch.full((3, 1), n.item()),
        torch.full((2,), n),
        torch.full_like(y, n.item()),
    ),
    "chosen": lambda m, y, n: torch.where(y > n.item(), y, n.item()).masked_fill(y > 1, m.eps.item()),
    "computed": lambda m, y, n: y * y.sum().item(),
    "trained": lambda m, y, n: y * m.temperature.item(),
    "short": lambda m, y, n: (y, y.bfloat16() + n.item(), y.half() * n.item()),
}


@pytest.mark.parametrize("use", VALUES.values(), ids=VALUES)
def test_a_number_that_is_only_computed_with_needs_neither_guard_nor_cut(use):
    module, eager = compiled(use)
    for value in (0.5, 0.25, 2.0):
        equal(module, eager, torch.tensor(value))
    assert len(module.session.variants) == 1 and module.session.partial is None
    assert not module.session.variants[0].reads


def test_operations_of_a_program_with_numbers_are_counted():
    module, eager = compiled(VALUES["full"])
    equal(module, eager, torch.tensor(0.5))
    assert module.session.variants[0].flops == 2 * 4 * 8 * 8


CONFIGURATIONS: dict[str, Callable[[Any, torch.Tensor, torch.Tensor], Any]] = {
    "item": lambda m, y, n: F.layer_norm(y, (8,), eps=n.item()),
    "float": lambda m, y, n: F.leaky_relu(y, float(n)),
    "int": lambda m, y, n: y.roll(int(n), 1),
    "length": lambda m, y, n: y[:, : int(n) + 2],
    "branch": lambda m, y, n: y if n else y + 1,
    "loop": lambda m, y, n: sum((y * i for i in range(int(n) + 1)), y),
    "as a value, too": lambda m, y, n: F.dropout(y, n.item() / 9, False) * n.item(),
}


@pytest.mark.parametrize("use", CONFIGURATIONS.values(), ids=CONFIGURATIONS)
def test_a_number_that_configures_is_a_constant_of_the_variant(use):
    module, eager = compiled(use)
    for value in (0.0, 2.0, 0.0, 2.0):
        equal(module, eager, torch.tensor(value))
    assert len(module.session.variants) == 2 and module.session.partial is None


def test_elements_of_a_tensor_and_lists():
    module, eager = compiled(lambda m, y, n: F.elu(y, n[1].item()).split(n[2:].long().tolist(), 1))
    with torch.no_grad():
        equal(module, eager, torch.tensor([1.0, 0.5, 3, 5]))
    assert module.session.partial is not None, "lengths of another type are computed"
    module, eager = compiled(lambda m, y, n: y.split(n[1:].tolist(), 1))
    for numbers in ([9, 3, 5], [7, 3, 5], [7, 4, 4]):
        equal(module, eager, torch.tensor(numbers))
    assert len(module.session.variants) == 2 and module.session.partial is None


def test_tensors_of_the_module():
    module, eager = compiled(
        lambda m, y, n: F.layer_norm(y, (8,), eps=m.eps.item()) * F.elu(y, m.rates[1].item() + m.rate.item())
    )
    equal(module, eager, torch.tensor(1.0))
    with torch.no_grad():
        eager.linear.weight.add_(0.1)
    equal(module, eager, torch.tensor(1.0))
    assert len(module.session.variants) == 1, "weights are no constants because a number is"
    eager.eps.fill_(0.5)
    equal(module, eager, torch.tensor(1.0))
    eager.rates[1] = 2.0
    equal(module, eager, torch.tensor(1.0))
    eager.rate.fill_(2.0)
    equal(module, eager, torch.tensor(1.0))
    assert len(module.session.variants) == 4
    eager.eps.fill_(1e-3)
    eager.rates[1] = 0.5
    eager.rate.fill_(0.75)
    equal(module, eager, torch.tensor(1.0))
    assert len(module.session.variants) == 4, "the first values again"


def test_zeros_have_signs_and_nan_is_itself():
    module, eager = compiled(
        lambda m, y, n: y * math.copysign(1.0, float(n)) if float(n) == 0 else y + float(n)
    )
    for value in (0.0, -0.0, math.nan, math.nan, 0.0):
        equal(module, eager, torch.tensor(value))
    assert len(module.session.variants) == 3


def test_sizes_and_values_guard_together():
    module, eager = compiled(lambda m, y, n: F.leaky_relu(y, n.item()), dynamic=True)
    for rows, value in ((4, 0.5), (5, 0.5), (5, 0.25), (6, 0.25), (7, 0.5)):
        equal(module, eager, torch.tensor(value), rows=rows)
    assert len(module.session.variants) == 2


def test_after_eight_values_the_module_is_cut():
    module, eager = compiled(lambda m, y, n: F.leaky_relu(y, n.item()))
    for value in range(10):
        equal(module, eager, torch.tensor(float(value)))
    assert module.session.partial is not None
    assert "the value of number is 8.0 instead of" in module.session.partial.cuts[0].what


def counts(module: Any, y: torch.Tensor, number: torch.Tensor) -> torch.Tensor:
    slope = module.step.item() / 9
    module.step.add_(1)
    return F.leaky_relu(y, slope)


def test_a_counter_is_no_constant():
    module, eager = compiled(counts)
    for _ in range(3):
        x, before = torch.randn(4, 8), eager.step.item()
        ours = module(x, torch.tensor(1.0))
        assert eager.step.item() == before + 1
        eager.step.fill_(before)
        torch.testing.assert_close(ours, eager(x, torch.tensor(1.0)))
    assert not module.session.variants
    whole, _ = compiled(counts, fullgraph=True)
    with raises(ExportError, "changes step"):
        whole(torch.randn(4, 8), torch.tensor(1.0))


def test_what_is_trained_is_no_constant_in_training():
    module, eager = compiled(lambda m, y, n: -y if m.temperature.item() > 9 else y)
    equal(module, eager, torch.tensor(1.0))
    assert not module.session.variants
    with torch.no_grad():
        equal(module, eager, torch.tensor(1.0))
    assert len(module.session.variants) == 1


def test_a_library_takes_any_value(tmp_path):
    model = Reads(lambda m, y, n: F.leaky_relu(y, n.item())).eval()
    with raises(DeploymentError, "number"):
        daceml.export(model, torch.randn(4, 8), torch.tensor(0.1), to=tmp_path / "library")


def test_a_step_takes_any_value():
    model = nn.Linear(8, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    step = daceml.compile_step(model, lambda y, n: F.leaky_relu(y, n.item()).sum(), optimizer)
    with raises(CallError, "targets[0]"):
        step(torch.randn(4, 8), torch.tensor(0.1))
