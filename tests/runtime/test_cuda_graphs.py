"""Captured calls: when a program runs as it is, is captured, replayed and captured again."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import daceml
from daceml.errors import ConfigurationError
from daceml.runtime.cuda_graphs import Call, Replays
from tests.support.golden import raises


class Graphs:
    """Graphs as CUDA has them, on the processor: a replay writes where the captured call wrote."""

    def __init__(self) -> None:
        self.captures = self.replays = 0
        self.inputs: list[list[torch.Tensor]] = []
        self.outputs: list[list[torch.Tensor]] = []

    def __call__(self, call: Call, inputs: list[torch.Tensor]):
        self.captures += 1
        outputs = call(inputs)
        self.inputs.append(inputs)
        self.outputs.append(outputs)

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


def added(inputs: list[torch.Tensor]) -> list[torch.Tensor]:
    return [inputs[0] + inputs[1]]


def test_what_stands_still_is_read_where_it_lies():
    graphs = Graphs()
    replays = Replays(standing=[1], capture=graphs)
    kept, others = torch.ones(2), [torch.full((2,), float(n)) for n in range(8)]
    for number in range(5):
        kept.fill_(number)
        (y,) = replays(added, [others[number], kept], 0)
        assert y.tolist() == [2.0 * number] * 2
    # two calls as they are: in the second one, lent outputs come to where they stay
    assert (graphs.captures, graphs.replays) == (1, 3)
    assert graphs.inputs[0][1] is kept
    assert all(place is not given for place in graphs.inputs[0][:1] for given in others)


def test_what_moves_after_all_is_copied_from_then_on():
    graphs = Graphs()
    replays = Replays(standing=[0, 1], capture=graphs)
    still = torch.ones(2)
    moving = [torch.full((2,), 3.0)] * 4 + [torch.full((2,), float(n)) for n in range(4)]
    for given in moving:
        assert replays(added, [given, still], 0)[0].tolist() == (given + 1).tolist()
    assert graphs.captures == 2
    assert graphs.inputs[0][0] is moving[0]
    assert graphs.inputs[1][0] is not moving[4]
    assert graphs.inputs[1][1] is still


def test_the_saved_values_of_a_step_are_inputs_that_stand_still(monkeypatch: pytest.MonkeyPatch):
    """A training step: forward lends, backward reads there; weights are read there as well."""
    module = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2))
    compiled = daceml.compile(module)
    compiled(torch.ones(4, 3)).sum().backward()
    (variant,) = compiled.session.variants
    backward = variant.backward
    record = backward.record
    forwards, backwards = Graphs(), Graphs()
    lent = [place for place in record.saved if place >= record.results]
    assert lent
    variant.program._replays = Replays(lent, capture=forwards)
    backward.program._replays = Replays(standing=backward.saved_places, capture=backwards)
    for number in range(5):
        x = torch.full((4, 3), 0.1 * number)
        module.zero_grad()
        compiled(x).square().sum().backward()
        expected = torch.autograd.grad(module(x).square().sum(), list(module.parameters()))
        for parameter, gradient in zip(module.parameters(), expected, strict=True):
            torch.testing.assert_close(parameter.grad, gradient)
    assert backwards.captures == 1
    first = len(record.cotangents)
    outputs = {x.data_ptr() for x in forwards.outputs[0]}
    found = [x.data_ptr() in outputs for x in backwards.inputs[0][first : first + len(record.saved)]]
    assert found == [place >= record.results for place in record.saved]


def test_what_cannot_be_captured_runs_as_it_is():
    def refusing(call: Call, inputs: list[torch.Tensor]):
        raise RuntimeError("operation not permitted when stream is capturing")

    replays = Replays(capture=refusing)
    for number in range(3):
        assert replays(doubled, [torch.full((1,), float(number))], 0)[0].item() == 2 * number


def test_graphs_are_for_cuda_devices():
    with raises(ConfigurationError, "cuda_graphs=True", "cpu"):
        daceml.compile(nn.Tanh(), cuda_graphs=True)(torch.ones(2))
