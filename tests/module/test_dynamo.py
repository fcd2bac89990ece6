"""`torch.compile(backend="daceml")`: found by its name, right for every graph, refusing with a reason."""

from __future__ import annotations

import copy
import logging
import math
from typing import Any

import pytest
import torch
from torch import nn
from torch._dynamo import list_backends
from torch._dynamo.exc import BackendCompilerFailed

import daceml
from daceml.errors import ConfigurationError, ExportError
from tests.support.golden import golden, raises
from tests.support.sampling import sampled


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
@pytest.mark.parametrize("dynamic", sampled([None, True], True))
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


class Sign(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.sign()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:  # pyright: ignore
        return gradient * 5


class Trained(nn.Module):
    """Statistics, averages, constants among values, a graph break, and a layer used twice."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.norm, self.down = nn.Linear(5, 5), nn.BatchNorm1d(5), nn.Linear(5, 3)
        self.register_buffer("average", torch.zeros(5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(self.up(torch.tanh(self.up(x))))
        with torch.no_grad():
            self.average.mul_(0.9).add_(y.mean(0), alpha=0.1)
        torch._dynamo.graph_break()
        return self.down((y - self.average) * y.detach().exp())


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")  # read by Dynamo
@pytest.mark.parametrize("dynamic", sampled([None, True], None))
def test_training_is_that_of_eager(dynamic: bool | None, caplog: pytest.LogCaptureFixture):
    torch.manual_seed(0)
    eager = Trained().double()
    module = copy.deepcopy(eager)
    compiled = torch.compile(module, backend="daceml", dynamic=dynamic)
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.1) for m in (module, eager)]
    for size in (4, 4, 6):
        x = torch.randn(size, 5, dtype=torch.float64)
        leaves = [x.clone().requires_grad_() for _ in range(2)]
        for call, leaf, optimizer in zip((compiled, eager), leaves, optimizers, strict=True):
            optimizer.zero_grad()
            call(leaf).pow(2).sum().backward()
            optimizer.step()
        torch.testing.assert_close(leaves[0].grad, leaves[1].grad, rtol=1e-6, atol=1e-6)
        for ours, theirs in zip(module.state_dict().values(), eager.state_dict().values(), strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-6)
    assert not [record for record in caplog.records if record.name.startswith("daceml")], "it runs eagerly"


@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")  # by Dynamo
def test_gradients_of_functions_and_checkpoints_are_kept():
    from torch.utils.checkpoint import checkpoint

    torch.manual_seed(0)
    layer = nn.Linear(4, 4)

    def function(x: torch.Tensor) -> torch.Tensor:
        return checkpoint(layer, Sign.apply(x - 0.5) * x, use_reentrant=False).sin()  # pyright: ignore

    found = []
    for call in (torch.compile(function, backend="daceml"), function):
        x = torch.linspace(0, 1, 4).requires_grad_()
        found.append(torch.autograd.grad(call(x).sum(), [x, layer.weight]))
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)


@torch.no_grad()
def test_unknown_options_are_refused():
    with raises(BackendCompilerFailed, "max_autotune", exact=False) as caught:
        torch.compile(Net().eval(), backend="daceml", options={"max_autotune": True})(torch.randn(3, 5))
    refusal = caught.value.inner_exception
    assert isinstance(refusal, ConfigurationError) and str(refusal) == golden()


@pytest.mark.parametrize("options", [{"fullgraph": False}, {"fullgraph": True}])
def test_a_graph_that_is_not_one_program_is_cut_or_refused(options: dict[str, bool]):
    def function(x: torch.Tensor) -> torch.Tensor:
        return x.as_strided((2,), (1,), 1) * 2

    compiled = torch.compile(function, backend="daceml", options=options)
    if options["fullgraph"]:
        with raises(ExportError, "as_strided"):
            compiled(torch.ones(2, 3))
    else:
        agree(compiled, function, torch.randn(2, 3))


class Grows(nn.Module):
    """A cache among the arguments, as a decoder has one."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor, cache: dict[str, torch.Tensor]) -> torch.Tensor:
        keys = self.linear(x)
        cache["keys"] = torch.cat([cache["keys"], keys], dim=0) if "keys" in cache else keys
        return torch.softmax(x @ cache["keys"].T, dim=-1) @ cache["keys"]


@torch.no_grad()
def test_a_cache_grows_in_three_programs(caplog: pytest.LogCaptureFixture):
    eager = Grows()
    compiled = torch.compile(eager, backend="daceml")
    with caplog.at_level(logging.INFO, logger="daceml.module.session"):
        for _ in range(2):
            ours: dict[str, torch.Tensor] = {}
            theirs: dict[str, torch.Tensor] = {}
            for tokens in (3, *[1] * 12):
                x = torch.randn(tokens, 4)
                torch.testing.assert_close(compiled(x, ours), eager(x, theirs))
                torch.testing.assert_close(ours, theirs)
    compilations = [m for m in caplog.messages if m.startswith("compiling")]
    assert len(compilations) == 3, compilations


class Residual(nn.Module):
    """Differentiates a network with respect to its input, as physics-informed networks do."""

    def __init__(self, *, asks: bool = False) -> None:
        super().__init__()
        self.network = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 1))
        self.asks = asks

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = x.requires_grad_() if self.asks else x
        u = self.network(x)
        (slope,) = torch.autograd.grad(u.sum(), [x], create_graph=True)
        return u, slope.pow(2).sum(1)


@pytest.mark.filterwarnings("ignore:.*not a leaf Tensor:UserWarning")  # Dynamo looks at .grad
@pytest.mark.parametrize("asks", [False, True])
@pytest.mark.parametrize("dynamo", [False, True])
def test_a_forward_that_asks_for_gradients_trains(asks: bool, dynamo: bool):
    module = Residual(asks=asks).double()

    def trained(call: Any) -> list[torch.Tensor]:
        module.zero_grad()
        x = torch.linspace(-1, 1, 10, dtype=torch.float64).reshape(5, 2)
        u, slope = call(x if asks else x.requires_grad_())
        (u.sum() + slope.sum()).backward()
        return [
            u.detach(),
            slope.detach(),
            *(p.grad.clone() for p in module.parameters() if p.grad is not None),
        ]

    eager = trained(module)
    compiled = torch.compile(module, backend="daceml") if dynamo else daceml.compile(module, fullgraph=False)
    for _ in range(3):
        torch.testing.assert_close(trained(compiled), eager, rtol=1e-12, atol=1e-13)


def test_second_derivatives_through_batch_normalization_that_updates_its_statistics():
    torch.manual_seed(0)
    eager = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Tanh(), nn.Linear(4, 1)).double()
    module = copy.deepcopy(eager)
    compiled = torch.compile(module, backend="daceml")

    def penalized(called, module):
        x = torch.linspace(-1, 1, 15, dtype=torch.float64).reshape(5, 3).requires_grad_()
        (slope,) = torch.autograd.grad(called(x).sum(), x, create_graph=True)
        slope.pow(2).sum().backward()
        return x.grad, [p.grad for p in module.parameters()], list(module.buffers())

    torch.testing.assert_close(penalized(compiled, module), penalized(eager, eager), rtol=1e-9, atol=1e-11)
