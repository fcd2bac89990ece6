"""Captured calls: when a program runs as it is, is captured, replayed and captured again."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import daceml
from daceml.errors import ConfigurationError
from daceml.runtime.replays import Call, Replays


class Graphs:
    """Graphs as CUDA has them, on the processor: a replay writes where the captured call wrote."""

    def __init__(self) -> None:
        self.captures = self.replays = 0

    def __call__(self, call: Call, inputs: list[torch.Tensor]):
        self.captures += 1
        outputs = call(inputs)

        def replay() -> None:
            self.replays += 1
            for place, value in zip(outputs, call(inputs), strict=True):
                place.detach().copy_(value)

        return outputs, replay


def doubled(inputs: list[torch.Tensor]) -> list[torch.Tensor]:
    return [2 * x for x in inputs]


def test_the_first_call_runs_the_second_is_captured_and_others_are_replayed():
    graphs = Graphs()
    replays = Replays(capture=graphs)
    for number in range(4):
        (y,) = replays(doubled, [torch.full((3,), float(number))], 0)
        assert y.tolist() == [2.0 * number] * 3
    assert (graphs.captures, graphs.replays) == (1, 3)


def test_results_stay_what_they_are():
    replays = Replays(capture=Graphs())
    kept = [replays(doubled, [torch.full((2,), float(n))], 0)[0] for n in range(4)]
    assert [y[0].item() for y in kept] == [0, 2, 4, 6]


def test_other_sizes_and_moved_weights_have_graphs_of_their_own():
    graphs = Graphs()
    replays = Replays(capture=graphs)
    for size in (2, 2, 5, 5, 2):
        assert replays(doubled, [torch.ones(size)], 0)[0].shape == (size,)
    assert graphs.captures == 2
    replays(doubled, [torch.ones(2)], 1)
    assert graphs.captures == 3


def test_a_backward_pass_whose_saved_values_are_overwritten_is_refused():
    class Square(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x: torch.Tensor) -> torch.Tensor:
            result, saved = replays(lambda given: [given[0] ** 2, given[0] * 2], [x.detach()], 0)
            ctx.save_for_backward(saved)
            return result

        @staticmethod
        def backward(ctx, dy: torch.Tensor) -> torch.Tensor:
            return dy * ctx.saved_tensors[0]

    replays = Replays(lent=[1], capture=Graphs())
    results = []
    for number in range(1, 4):
        x = torch.full((2,), float(number), requires_grad=True)
        y = Square.apply(x)
        y.sum().backward()
        assert x.grad is not None
        assert x.grad.tolist() == [2.0 * number] * 2
        results.append(Square.apply(x))
    results[-1].sum().backward()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        results[-2].sum().backward()


def test_what_cannot_be_captured_runs_as_it_is():
    def refusing(call: Call, inputs: list[torch.Tensor]):
        raise RuntimeError("operation not permitted when stream is capturing")

    replays = Replays(capture=refusing)
    for number in range(3):
        assert replays(doubled, [torch.full((1,), float(number))], 0)[0].item() == 2 * number


def test_graphs_are_for_cuda_devices():
    with pytest.raises(ConfigurationError, match="cuda_graphs=True was given"):
        daceml.compile(nn.Tanh(), cuda_graphs=True)(torch.ones(2))
