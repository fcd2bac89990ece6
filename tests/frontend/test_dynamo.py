"""`torch.compile(backend="daceml")`: found by its name, right for every graph, refusing with a reason."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn
from torch._dynamo import list_backends
from torch._dynamo.exc import BackendCompilerFailed

from daceml.errors import BackwardUnavailableError, ConfigurationError


class Net(nn.Module):
    """A layer, a norm that counts, a number of Python and a size among the results."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(5, 4)
        self.norm = nn.BatchNorm1d(4)

    def forward(self, x: torch.Tensor, times: int = 2) -> tuple[torch.Tensor, int]:
        return torch.tanh(self.norm(self.linear(x))) * times, x.shape[0]


@pytest.fixture(autouse=True)
def _fresh():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def agree(compiled, eager, *args):
    ours, theirs = compiled(*args), eager(*args)
    torch.testing.assert_close(ours[0], theirs[0], rtol=1e-5, atol=1e-6)
    assert ours[1:] == theirs[1:]


def test_the_entry_point_is_found():
    assert "daceml" in list_backends()


@torch.no_grad()
@pytest.mark.parametrize("dynamic", [None, True])
def test_sizes_and_numbers_may_change(dynamic: bool | None):
    eager = Net().eval()
    compiled = torch.compile(eager, backend="daceml", dynamic=dynamic)
    agree(compiled, eager, torch.randn(3, 5))
    agree(compiled, eager, torch.randn(6, 5))
    agree(compiled, eager, torch.randn(1, 5))
    agree(compiled, eager, torch.randn(4, 5), 3)


@torch.no_grad()
def test_sizes_that_have_changed_may_be_numbers():
    def function(x: torch.Tensor) -> tuple[torch.Tensor, int]:
        return x * x.shape[0] / math.sqrt(x.shape[-1]) + x[: x.shape[0] // 2].sum() / x.numel(), x.shape[0]

    compiled = torch.compile(function, backend="daceml")
    for shape in ((4, 4), (6, 3), (1, 4), (5, 2)):
        agree(compiled, function, torch.randn(shape))


@torch.no_grad()
def test_buffers_change_as_in_eager():
    import copy

    eager = Net().train()
    module = copy.deepcopy(eager)
    compiled = torch.compile(module, backend="daceml")
    x = torch.randn(7, 5)
    agree(compiled, eager, x)
    for ours, theirs in zip(module.buffers(), eager.buffers(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)


@torch.no_grad()
def test_a_graph_break_is_two_graphs():
    @torch.compile(backend="daceml")
    def function(x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(x) * 2
        torch._dynamo.graph_break()
        return y + x

    x = torch.randn(5)
    torch.testing.assert_close(function(x), torch.relu(x) * 2 + x)


def test_gradients_are_refused_with_a_reason():
    with pytest.raises(BackendCompilerFailed, match="results need gradients") as caught:
        torch.compile(Net(), backend="daceml")(torch.randn(3, 5))
    assert isinstance(caught.value.inner_exception, BackwardUnavailableError)


@torch.no_grad()
def test_unknown_options_are_refused():
    with pytest.raises(BackendCompilerFailed, match="one option") as caught:
        torch.compile(Net().eval(), backend="daceml", options={"max_autotune": True})(torch.randn(3, 5))
    assert isinstance(caught.value.inner_exception, ConfigurationError)
