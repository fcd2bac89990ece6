"""Models that are not one program: results, gradients, effects and random numbers are those of eager."""

from __future__ import annotations

import copy
import random
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812  torch's own name for it
from torch.utils import _pytree as pytree

import daceml
from daceml.config import config
from daceml.module.module import DaceModule
from daceml.module.partial.region_ledger import recorded_regions

COUNT = 0


class Layers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8)


class LayerDrop(nn.Module):
    """Skips layers by a tensor's value, as BART does."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Sequential(nn.Linear(8, 8), nn.Tanh()) for _ in range(3)])

    def forward(self, x):
        for layer in self.layers:
            if self.training and torch.rand([]) < 0.4:
                continue
            x = layer(x).relu()
        return x


class PythonLayerDrop(LayerDrop):
    def forward(self, x):
        for layer in self.layers:
            if self.training and random.random() < 0.4:
                continue
            x = layer(x)
        return x


class Vmap(Layers):
    def forward(self, x):
        return self.second(torch.vmap(lambda a, b: (a * b).sum() + a)(self.first(x), x))


class Nonzero(Layers):
    def forward(self, x):
        y = self.first(x)
        return self.second(y), (y.abs() > 0.3).nonzero(), y[y > 0].sum()


class Unique(Layers):
    def forward(self, x):
        values, counts = torch.unique((x * 2).long(), return_counts=True)
        return self.first(x), values, counts, torch.repeat_interleave(x, torch.tensor([1, 2, 0, 3]), dim=0)


class Fourier(Layers):
    def forward(self, x):
        turned = torch.fft.rfft(self.first(x)) * torch.exp(torch.tensor(0.3j))
        return self.second(torch.fft.irfft(turned, n=8))


class Decompositions(Layers):
    def forward(self, x):
        y = self.first(x)
        q, r = torch.linalg.qr(y.T @ y + torch.eye(8))
        return self.second(q @ r), torch.linalg.slogdet(y @ y.T + torch.eye(4))[1]


class ItemConfigures(Layers):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("eps", torch.tensor(1e-3))

    def forward(self, x):
        return F.layer_norm(self.second(self.first(x)), (8,), eps=self.eps.item())


class ItemIsAValue(Layers):
    def forward(self, x):
        return self.second(self.first(x)) * x.sum().item()


class Numpy(Layers):
    def forward(self, x):
        drawn = torch.from_numpy(np.random.randn(8).astype("float32"))  # noqa: NPY002
        return self.first(x) * float(np.random.rand()) + drawn  # noqa: NPY002


class OwnGenerators(Layers):
    def __init__(self) -> None:
        super().__init__()
        self.python, self.numpy = random.Random(3), np.random.default_rng(4)

    def forward(self, x):
        return self.second(self.first(x)) * self.python.random() + self.numpy.random()


class Counts(Layers):
    def forward(self, x):
        global COUNT
        COUNT += 1
        return self.second(self.first(x)) * COUNT


class History(Layers):
    def __init__(self) -> None:
        super().__init__()
        self.history: list[float] = []

    def forward(self, x):
        y = self.first(x)
        self.history.append(y.detach().mean().item())
        return self.second(y) * len(self.history)


class Clock(Layers):
    def forward(self, x):
        self.at = time.perf_counter()
        return self.second(self.first(x)) + float(time.time() > 1e9)


class Loop(Layers):
    def forward(self, x):
        y = self.first(x)
        while y.norm() > 1:
            y = self.second(y) * 0.3
        return y


class Condition(Layers):
    def forward(self, x):
        return torch.cond(x.sum() > 0, lambda v: self.first(v), lambda v: self.second(v), (x,))


class Changes(Layers):
    """An in-place operator on a view, in a part that runs eagerly."""

    def forward(self, x):
        y = self.first(x).clone()
        y[x > 0.5] = 0.0
        y.diagonal().add_(1.0)
        z = torch.linalg.pinv(y) * 1.5
        z.mul_(0.5)
        return self.second(z.T)


class Normalized(nn.Module):
    """A buffer that is written, a region without gradients and a scatter that the eager part does."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm = nn.Linear(8, 8), nn.BatchNorm1d(8)

    def forward(self, x):
        with torch.no_grad():
            norm = torch.linalg.svdvals(self.linear.weight).max()
        return self.norm(self.linear(x) / norm).masked_scatter(x > 0, torch.ones(32))


@torch.library.custom_op("daceml_tests::twice_plus_one", mutates_args=())
def twice_plus_one(x: torch.Tensor) -> torch.Tensor:
    return x * 2 + 1


@twice_plus_one.register_fake
def _(x):
    return torch.empty_like(x)


twice_plus_one.register_autograd(lambda context, gradient: gradient * 2)


class OwnOperator(Layers):
    def forward(self, x):
        return self.second(twice_plus_one(self.first(x)))


WHOLE = [Vmap, ItemConfigures, ItemIsAValue]
CUT = [
    LayerDrop,
    PythonLayerDrop,
    Nonzero,
    Unique,
    Fourier,
    Decompositions,
    ItemConfigures,
    ItemIsAValue,
    Numpy,
    OwnGenerators,
    Counts,
    History,
    Clock,
    Loop,
    Condition,
    Changes,
    Normalized,
    OwnOperator,
]


# Dynamo reads the attribute of results, and hides the warning where warnings are no errors
pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")


def seed(number: int) -> None:
    global COUNT
    COUNT = number
    torch.manual_seed(number)
    random.seed(number)
    np.random.seed(number)  # noqa: NPY002


def step(module: nn.Module, number: int) -> tuple[Any, list[Any], list[Any]]:
    """Results, gradients and buffers of a call, and what it drew."""
    seed(number)
    module.zero_grad()
    with torch.set_grad_enabled(module.training):
        results = module(torch.randn(4, 8))
    carrying = [t for t in pytree.tree_leaves(results) if isinstance(t, torch.Tensor) and t.requires_grad]
    if carrying:
        sum((t.square().sum() for t in carrying), torch.zeros(())).backward()
    drawn = [torch.rand(1).item(), random.random(), np.random.rand()]  # noqa: NPY002
    gradients = [None if p.grad is None else p.grad.clone() for p in module.parameters()]
    return results, [*gradients, *(b.clone() for b in module.buffers())], drawn


def equal(compiled: nn.Module, eager: nn.Module) -> None:
    for training in (True, False):
        eager.train(training), compiled.train(training)
        for number in range(4):
            ours, theirs = step(compiled, number), step(eager, number)
            torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("make", [*WHOLE, *CUT])
def test_results_gradients_and_effects_are_those_of_eager(make: Callable[[], nn.Module]):
    seed(0)
    eager = make()
    module = copy.deepcopy(eager)
    compiled = daceml.compile(module, fullgraph=False)
    assert isinstance(compiled, DaceModule)
    equal(compiled, eager)
    if isinstance(eager, History):
        assert module.history == pytest.approx(eager.history, rel=1e-5)
    assert bool(compiled.session.variants) == (make in WHOLE or make in (LayerDrop, PythonLayerDrop))


@pytest.mark.parametrize("make", [Fourier, Decompositions, Normalized, OwnOperator])
def test_operators_by_name_make_one_program_of_them(
    make: Callable[[], nn.Module], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("DACEML_FALLBACK", "onnxruntime")
    config.cache_clear()
    seed(0)
    eager = make()
    compiled = daceml.compile(copy.deepcopy(eager), fullgraph=False)
    equal(compiled, eager)
    assert isinstance(compiled, DaceModule)
    assert compiled.session.partial is None


@pytest.mark.parametrize("make", [LayerDrop, Nonzero, Fourier, Decompositions, ItemIsAValue])
def test_torch_compile_runs_them_too(make: Callable[[], nn.Module], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("DACEML_FULLGRAPH", "0")
    config.cache_clear()
    try:
        seed(0)
        eager = make()
        compiled = torch.compile(copy.deepcopy(eager), backend="daceml")
        equal(compiled, eager)  # pyright: ignore[reportArgumentType]
    finally:
        config.cache_clear()


class Pooled(Layers):
    """Sums over groups, whose number is read from the data."""

    def forward(self, x: torch.Tensor, group: torch.Tensor) -> torch.Tensor:
        count = int(group.max()) + 1
        y = torch.tanh(self.first(x))
        return torch.tanh(self.second(y.new_zeros(count, 8).index_add(0, group, y))) / count


def test_a_whole_number_that_changes_needs_one_program_after_the_cut():
    seed(0)
    eager = Pooled()
    compiled = daceml.compile(copy.deepcopy(eager), fullgraph=False)
    with recorded_regions() as ledger:
        for count in (3, 5, 4, 9, 1, 2, *range(10, 20)):
            group = torch.randint(0, count, (24,))
            group[0] = count - 1
            x = torch.randn(24, 8)
            results = []
            for module in (compiled, eager):
                module.zero_grad()
                y = module(x, group)
                y.square().sum().backward()
                results.append([y, *(p.grad for p in module.parameters())])
            torch.testing.assert_close(*results, rtol=1e-4, atol=1e-5)
    programs = [region for region in ledger.regions.values() if not region.cuts]
    assert len(programs) <= 4
    assert len(ledger.regions) == len(programs) + 1  # nothing else is cut, nor runs eagerly


class Scaled(nn.Module):
    """Numbers of Python and sizes, used on both sides of an operator that no program has."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = 0.3
        self.first, self.second = (nn.Parameter(torch.randn(8, 8)) for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        half = self.scale * 0.5
        y = torch.tanh(x.reshape(x.shape[0] * 2, 8) @ self.first) * self.scale + half
        y = torch.linalg.inv(y.mT @ y + torch.eye(8))
        y = x.reshape(x.shape[0] * 2, 8) @ y @ self.second
        return torch.tanh(y).reshape(x.shape[0], 2, 8) / self.scale * half


def test_numbers_and_sizes_go_from_piece_to_piece():
    seed(0)
    eager = Scaled()
    compiled = daceml.compile(copy.deepcopy(eager), fullgraph=False, dynamic=True)
    with recorded_regions() as ledger:
        for size in (3, 5, 4):
            x = torch.randn(size, 2, 8)
            results = []
            for module in (compiled, eager):
                module.zero_grad()
                y = module(x)
                y.square().sum().backward()
                results.append([y, *(p.grad for p in module.parameters())])
            torch.testing.assert_close(*results, rtol=1e-4, atol=1e-5)
    programs = [region for region in ledger.regions.values() if not region.cuts]
    assert len(programs) == 2  # whatever the size
