"""Reads across memory in tiles: the same numbers, bit for bit, wherever blocks and lines end."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional

import daceml
from daceml.module.module import DaceModule
from daceml.sdfg.passes import PassRecord
from daceml.transformations import standard_recipe
from tests.support.golden import golden
from tests.support.tensor_functions import Apply, Function, optimised

PLAIN = standard_recipe().without("tile_reads")


def record(function: Function, *shapes: tuple[int, ...]) -> PassRecord:
    (found,) = (p for p in optimised(function, *shapes).passes if p.name == "tile_reads")
    return found


def tiled(function: Function, *shapes: tuple[int, ...]) -> int:
    return record(function, *shapes).applied.get("tiled arrays", 0)


def turned(x: torch.Tensor) -> torch.Tensor:
    return functional.gelu(x.transpose(-2, -1))


def gated(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x.permute(0, 2, 1) * torch.sigmoid(y) + y.permute(0, 2, 1).cos()


def to_images(x: torch.Tensor, y: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return functional.mish(x.permute(0, 3, 1, 2) + bias[:, None, None]) + y


CASES: dict[str, tuple[Function, tuple[tuple[int, ...], ...], int]] = {
    "whole blocks": (turned, ((64, 128),), 1),
    "blocks that end early": (turned, ((2, 67, 131),), 1),
    "fewer than a block": (turned, ((5, 9, 130),), 1),
    "a whole side within a block": (turned, ((3, 700, 7),), 0),
    "two arrays, one of them along memory, too": (gated, ((3, 70, 70), (3, 70, 70)), 2),
    "channels to the front": (to_images, ((2, 13, 15, 40), (2, 40, 13, 15), (40,)), 1),
    "all dimensions reversed": (lambda x: x.permute(3, 2, 1, 0).exp(), ((17, 18, 5, 19),), 1),
    "two places of an array": (lambda x: x.t()[1:].sin() + x.t()[:-1].cos(), ((130, 70),), 1),
    "three channels": (lambda x: x.permute(2, 0, 1).exp(), ((80, 90, 3),), 0),
    "small": (turned, ((63, 65),), 0),
}


@pytest.mark.parametrize("name", CASES)
def test_arrays_that_a_loop_reads_across_memory_come_in_tiles(name: str):
    function, shapes, arrays = CASES[name]
    assert tiled(function, *shapes) == arrays
    inputs = [torch.randn(shape) for shape in shapes]
    module = Apply(function)
    with torch.no_grad():
        found = daceml.compile(module)(*inputs)
        assert torch.equal(found, daceml.compile(module, recipe=PLAIN)(*inputs))
        assert torch.allclose(found, module(*inputs), atol=1e-5)


@pytest.mark.parametrize(
    "dtype", [torch.float64, torch.float16, torch.bfloat16, torch.int8, torch.int64, torch.bool], ids=str
)
def test_elements_of_other_sizes(dtype: torch.dtype):
    x, y = (torch.randint(-9, 9, (131, 259)).to(dtype) for _ in range(2))
    module = Apply(lambda x, y: (x.t() * y.t(), x.t() + y.t().to(torch.float32)))
    compiled = daceml.compile(module)
    with torch.no_grad():
        for ours, expected in zip(compiled(x, y), module(x, y), strict=True):
            assert torch.equal(ours, expected)


def test_gradients_are_those_of_the_plain_loops():
    inputs = [torch.randn(3, 70, 90), torch.randn(3, 90, 70)]
    module = Apply(lambda x, y: (x.transpose(1, 2) * y).tanh())
    results: list[torch.Tensor] = []
    for recipe in (None, PLAIN):
        given = [x.clone().requires_grad_() for x in inputs]
        daceml.compile(module, recipe=recipe)(*given).square().sum().backward()
        results += [x.grad for x in given if x.grad is not None]
    assert torch.equal(results[0], results[2]) and torch.equal(results[1], results[3])


def test_sizes_that_are_symbols_keep_their_loops():
    compiled = daceml.compile(Apply(turned), dynamic=True)
    for rows in (64, 130, 1):
        x = torch.randn(2, rows, 96)
        with torch.no_grad():
            assert torch.allclose(compiled(x), turned(x), atol=1e-6)


def test_what_is_left_behind_is_valid():
    """Networks are validated after the passes of a recipe that a user gives."""
    module = daceml.compile(Apply(gated), recipe=standard_recipe())
    inputs = torch.randn(2, 65, 65), torch.randn(2, 65, 65)
    with torch.no_grad():
        assert torch.allclose(module(*inputs), gated(*inputs), atol=1e-6)
        assert "tiled arrays" in " ".join(str(daceml.explain(module, *inputs)).split())


def test_what_is_not_tiled_says_why():
    (refusal,) = record(lambda x: x[:3].t().exp(), (1200, 1300)).refused
    assert refusal.reason == golden()
    assert "3 iterations" in refusal.reason


def test_costs_are_those_of_the_plain_loop():
    def costs(recipe: object) -> list[tuple[int, int, int, int]]:
        module = daceml.compile(Apply(turned), backward=False, recipe=recipe)
        assert isinstance(module, DaceModule)
        variant, _ = module.session.variant((torch.randn(67, 131),), {})
        steps = variant.program.manifest.steps
        return [(s.unique_bytes, s.total_bytes, s.flops, s.special_functions) for s in steps]

    assert costs(None) == costs(PLAIN)


def test_a_convolution_leaves_its_layout_in_tiles():
    torch.manual_seed(0)
    module = nn.Sequential(nn.Conv2d(32, 64, 3, padding=1), nn.Mish()).eval()
    x = torch.randn(2, 32, 29, 31)
    compiled = daceml.compile(module)
    with torch.no_grad():
        expected = module.double()(x.double())
        module.float()
        assert (compiled(x).double() - expected).abs().max() < 1e-5
        assert "tiled arrays" in " ".join(str(daceml.explain(compiled, x)).split())


class Rows(nn.Module):
    """A convolution and rows of its images; its gradient computes the rows again, in arrays of new names."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution, self.norm = nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16)
        self.query, self.key = nn.Linear(64, 64), nn.Linear(64, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = torch.relu(self.norm(self.convolution(x))).flatten(2).transpose(1, 2)
        rows = rows.reshape(rows.shape[0], -1, 64)
        weights = torch.softmax(self.query(rows) @ self.key(rows).transpose(1, 2) / 8, -1)
        return weights @ rows


def test_arrays_that_a_gradient_computes_again_come_in_tiles():
    module, x = Rows(), torch.randn(4, 3, 16, 16)
    compiled = daceml.compile(module)
    results = []
    for m in (compiled, module):
        module.zero_grad()
        m(x).square().mean().backward()
        results.append([p.grad.clone() for p in module.parameters() if p.grad is not None])
    torch.testing.assert_close(*results)


@pytest.mark.parametrize(("shape", "parallel"), [((256, 512), 1), ((64, 128), 0)])
def test_elements_of_tiles_count_for_threads(shape: tuple[int, int], parallel: int):
    (schedule,) = (p for p in optimised(turned, shape).passes if p.name == "schedule_maps")
    assert tiled(turned, shape) == 1
    assert schedule.applied.get("parallel loops", 0) == parallel
    reasons = [refusal.reason for refusal in schedule.refused]
    assert parallel or "8192 iterations are fewer than 16384" in reasons[0]
