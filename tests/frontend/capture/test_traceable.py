"""Distributions are part of the program, and validate their arguments outside of it as before."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch.distributions import Categorical, Distribution, MultivariateNormal, Normal

import daceml
from daceml.frontend.capture.traceable import traceable


class Policy(nn.Module):
    """Parameters, drawn values and given values of distributions; one of them lives as long as the module."""

    def __init__(self, *, validate_args: bool | None = None) -> None:
        super().__init__()
        self.validate_args = validate_args
        self.mean, self.logits = nn.Linear(4, 3), nn.Linear(4, 5)
        self.prior = MultivariateNormal(torch.zeros(3), torch.eye(3))

    def forward(self, x: torch.Tensor, action: torch.Tensor) -> tuple[torch.Tensor, ...]:
        normal = Normal(self.mean(x), 1.0, validate_args=self.validate_args)
        category = Categorical(logits=self.logits(x))
        z = normal.rsample()
        return normal.log_prob(z), self.prior.log_prob(z), category.log_prob(action), category.entropy()


def test_distributions_are_part_of_one_program():
    torch.manual_seed(0)
    eager = Policy()
    compiled = daceml.compile(copy.deepcopy(eager), fullgraph=True)
    x, action = torch.randn(6, 4), torch.randint(5, (6,))
    results: list[tuple[torch.Tensor, ...]] = []
    for call in (compiled, eager):
        torch.manual_seed(3)
        results.append(call(x, action))
        torch.stack([y.sum() for y in results[-1]]).sum().backward()
    torch.testing.assert_close(*results)
    for (name, ours), theirs in zip(compiled.named_parameters(), eager.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad, msg=name)


@pytest.mark.parametrize("validated", [True, False])
def test_distributions_validate_after_a_trace_as_before(validated: bool, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(Distribution, "_validate_args", validated)
    with traceable(nn.Identity()):
        Normal(torch.zeros(()), -torch.ones(()))  # invalid
    assert Distribution._validate_args is validated  # pyright: ignore[reportPrivateUsage]


def test_a_distribution_that_is_asked_by_name_to_validate_still_does():
    policy = daceml.compile(Policy(validate_args=True), fullgraph=False)
    with pytest.raises(ValueError, match="constraint"):
        policy(torch.full((6, 4), torch.nan), torch.zeros(6, dtype=torch.int64))
