"""Gradients of operators that torch runs by name: which of them run once more for their gradients."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field

import pytest
import torch
from torch import nn

import daceml


@dataclass
class Operators:
    """Operators of a library of the user's, and how often each has run."""

    runs: dict[str, int] = field(default_factory=dict[str, int])

    def count(self, name: str) -> None:
        self.runs[name] = self.runs.get(name, 0) + 1

    def taken(self) -> dict[str, int]:
        taken, self.runs = self.runs, {}
        return taken


@pytest.fixture(scope="module")
def operators() -> Generator[Operators]:
    found = Operators()
    library = torch.library.Library("reading", "FRAGMENT")
    for name in ("scaled", "exponential", "chosen", "quartered"):
        more = ", int count" if name == "chosen" else ""
        library.define(f"{name}(Tensor x{more}) -> Tensor")

    def scaled(x: torch.Tensor) -> torch.Tensor:
        found.count("scaled")
        return 3 * x

    def exponential(x: torch.Tensor) -> torch.Tensor:
        found.count("exponential")
        return x.exp()

    def chosen(x: torch.Tensor, count: int) -> torch.Tensor:
        found.count("chosen")
        return x[:count].clone()

    def keep(ctx, inputs, output):
        ctx.save_for_backward(output)

    def keep_length(ctx, inputs, output):
        ctx.length = len(inputs[0])

    def padded(ctx, g):
        return torch.cat([g, g.new_zeros(ctx.length - len(g), *g.shape[1:])]), None

    def quartered(x: torch.Tensor) -> torch.Tensor:
        found.count("quartered")
        return 0.25 * x

    def keep_number(ctx, inputs, output):
        ctx.number = 0.25  # no argument: it might be of the result

    library.impl("quartered", quartered, "CPU")
    torch.library.register_fake("reading::quartered", torch.empty_like, lib=library)
    torch.library.register_autograd(
        "reading::quartered", lambda ctx, g: g * ctx.number, setup_context=keep_number, lib=library
    )
    for name, function in (("scaled", scaled), ("exponential", exponential), ("chosen", chosen)):
        library.impl(name, function, "CPU")
    torch.library.register_fake("reading::scaled", torch.empty_like, lib=library)
    torch.library.register_fake("reading::exponential", torch.empty_like, lib=library)
    torch.library.register_fake(
        "reading::chosen", lambda x, count: x.new_empty(count, *x.shape[1:]), lib=library
    )
    torch.library.register_autograd("reading::scaled", lambda ctx, g: 3 * g, lib=library)
    torch.library.register_autograd(
        "reading::exponential", lambda ctx, g: g * ctx.saved_tensors[0], setup_context=keep, lib=library
    )
    torch.library.register_autograd("reading::chosen", padded, setup_context=keep_length, lib=library)
    yield found
    library._destroy()


class Chain(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.ops.reading.exponential(torch.ops.reading.scaled(x).sin())


def test_an_operator_runs_once_more_only_if_its_gradient_reads_its_result(operators: Operators):
    ours = daceml.compile(Chain())
    for turn in range(3):
        x = torch.randn(4, 5, dtype=torch.float64, requires_grad=True)
        y = x.detach().clone().requires_grad_()
        operators.taken()
        ours(x).square().sum().backward()
        # the first call finds out; the gradient of an exponential reads it
        assert operators.taken() == {"scaled": 2 if turn == 0 else 1, "exponential": 2}
        (3 * y).sin().exp().square().sum().backward()
        torch.testing.assert_close(x.grad, y.grad)


class Part(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.ops.reading.chosen(x, x.shape[0] // 2).sin()


def test_sizes_of_results_may_change(operators: Operators):
    ours = daceml.compile(Part(), dynamic=True)
    for rows in (6, 6, 10, 6):
        x = torch.randn(rows, 3, requires_grad=True)
        ours(x).sum().backward()
        expected = torch.cat([x[: rows // 2].detach().cos(), torch.zeros(rows - rows // 2, 3)])
        torch.testing.assert_close(x.grad, expected)


class Several(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        symmetric = x @ x.mT
        return torch.linalg.eigvalsh(symmetric).sum() + torch.linalg.matrix_exp(symmetric / 50).sum()


def test_operators_of_torch():
    ours, twin = daceml.compile(Several()), Several()
    for _ in range(3):
        x = torch.randn(5, 5, dtype=torch.float64, requires_grad=True)
        y = x.detach().clone().requires_grad_()
        ours(x).backward()
        twin(y).backward()
        torch.testing.assert_close(x.grad, y.grad)


class Quartered(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.ops.reading.quartered(x)


def test_a_gradient_that_keeps_a_number_of_its_own_runs_the_operator_again(operators: Operators):
    ours = daceml.compile(Quartered())
    for _ in range(3):
        x = torch.randn(4, 5, dtype=torch.float64, requires_grad=True)
        operators.taken()
        ours(x).sum().backward()
        assert operators.taken() == {"quartered": 2}
        torch.testing.assert_close(x.grad, torch.full_like(x, 0.25))
