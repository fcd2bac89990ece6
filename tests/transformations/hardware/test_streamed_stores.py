"""Stores past the caches: the same numbers, bit for bit, wherever blocks and lines end."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import nn
from torch.nn import functional

import daceml
from daceml.config import config
from daceml.module.module import DaceModule
from daceml.sdfg.passes import PassRecord
from daceml.transformations import standard_recipe
from tests.support.golden import golden
from tests.support.tensor_functions import Apply, Function, optimised

Streaming = Callable[[int], None]


@pytest.fixture
def streaming(monkeypatch: pytest.MonkeyPatch) -> Iterator[Streaming]:
    """Sets from how many bytes on arrays are written past the caches."""

    def set_bytes(count: int) -> None:
        monkeypatch.setenv("DACEML_STREAMING_BYTES", str(count))
        config.cache_clear()

    yield set_bytes
    monkeypatch.undo()
    config.cache_clear()


def record(function: Function, *shapes: tuple[int, ...]) -> PassRecord:
    (found,) = (p for p in optimised(function, *shapes).passes if p.name == "stream_stores")
    return found


def streamed(function: Function, *shapes: tuple[int, ...]) -> int:
    return record(function, *shapes).applied.get("streamed arrays", 0)


def run(module: nn.Module, *inputs: torch.Tensor) -> list[torch.Tensor]:
    """Results, gradients and buffers of one training step."""
    torch.manual_seed(0)
    compiled = daceml.compile(module)
    given = [x.clone().requires_grad_(x.is_floating_point()) for x in inputs]
    result = compiled(*given)
    outputs = result if isinstance(result, tuple) else (result,)
    sum(y.square().sum() for y in outputs).backward()
    wanted = [t.grad for t in (*given, *module.parameters()) if t.grad is not None]
    module.zero_grad()
    return [*(y.detach() for y in outputs), *wanted, *(b.clone() for b in module.buffers())]


class Block(nn.Module):
    """Dropout, residual, layer norm: two large results of one loop, and sums of columns behind."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.dropout, self.norm = nn.Dropout(0.3), nn.LayerNorm(width)

    def forward(self, x: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
        return self.norm(self.dropout(x) + residual)


def images(x: torch.Tensor) -> torch.Tensor:
    return torch.relu(x * 2 + 1).flatten(2).softmax(-1)


Shapes = tuple[tuple[int, ...], ...]
ROWS: dict[str, tuple[Function, Shapes]] = {
    "whole lines": (functional.silu, ((33, 1024),)),
    "end within lines": (functional.silu, ((33, 1003),)),
    "one block": (functional.silu, ((70, 200),)),
    "one row": (functional.silu, ((20001,),)),
    "shortest": (functional.silu, ((300, 64),)),
}
LOOPS: dict[str, tuple[Function, Shapes]] = {
    "images": (images, ((3, 5, 17, 9),)),
    "a permuted reader": (lambda x: torch.sin(x).transpose(0, 1) * 2, ((65, 3, 70),)),
    "softmax": (lambda x: x.softmax(-1), ((40, 515),)),
    "two results": (lambda x: (x.exp(), x.sin()), ((40, 130),)),
    "positions": (lambda x: x.tril() + torch.arange(140.0), ((150, 140),)),
    "broadcast": (lambda x, y: x * y, ((30, 1, 150), (20, 1))),
    "running sums": (lambda x: x.cumsum(0), ((50, 128),)),
    "a scatter": (lambda x: x.index_add(0, torch.tensor([1, 1, 3]), x[:3]), ((9, 100),)),
}


def together(cases: dict[str, tuple[Function, Shapes]]) -> tuple[Callable[[], nn.Module], Shapes]:
    """One program of all cases, each with inputs of its own."""

    def every(*inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        given = iter(inputs)
        found = [function(*itertools.islice(given, len(shapes))) for function, shapes in cases.values()]
        return tuple(y for some in found for y in (some if isinstance(some, tuple) else (some,)))

    return lambda: Apply(every), tuple(shape for _, shapes in cases.values() for shape in shapes)


MODULES: dict[str, tuple[Callable[[], nn.Module], Shapes]] = {
    "rows": together(ROWS),
    "loops": together(LOOPS),
    "batch norm": (lambda: nn.BatchNorm2d(6), ((5, 6, 12, 66),)),
    "flattened batch norm": (lambda: nn.BatchNorm2d(6), ((5, 6, 14, 14),)),
    "dropout and layer norm": (lambda: Block(300), ((37, 300), (37, 300))),
}


@pytest.mark.parametrize("name", MODULES)
def test_numbers_are_the_same(name: str, streaming: Streaming):
    build, shapes = MODULES[name]
    torch.manual_seed(1)
    module, inputs = build(), [torch.randn(shape) for shape in shapes]
    start = {k: v.clone() for k, v in module.state_dict().items()}
    streaming(0)
    plain = run(module, *inputs)
    module.load_state_dict(start)
    streaming(1)
    for position, (ours, expected) in enumerate(zip(run(module, *inputs), plain, strict=True)):
        assert torch.equal(ours, expected), f"position {position} of results, gradients and buffers"


def test_elements_of_other_sizes(streaming: Streaming):
    streaming(1)
    types = (torch.float64, torch.float16, torch.bfloat16, torch.int8, torch.int64)
    inputs = [torch.randint(-9, 9, (21, 333)).to(dtype) for dtype in types]
    compiled = daceml.compile(Apply(lambda *given: tuple(x + x for x in given)))
    for x, y in zip(inputs, compiled(*inputs), strict=True):
        assert torch.equal(y, x + x), x.dtype


def test_a_result_that_begins_within_a_line(streaming: Streaming):
    streaming(1)
    module = daceml.compile(Apply(lambda x: torch.cat([x.exp(), x.sin()])), backward=False)
    x = torch.randn(7, 131)
    assert torch.allclose(module(x), torch.cat([x.exp(), x.sin()]), atol=1e-6)


def test_only_large_arrays_are(streaming: Streaming):
    streaming(4 * 64 * 128)
    assert streamed(torch.sin, (64, 128)) == 1
    assert streamed(torch.sin, (63, 128)) == 0
    streaming(0)
    assert streamed(torch.sin, (64, 128)) == 0


def test_loops_of_a_nest_are(streaming: Streaming):
    streaming(1024)
    assert streamed(lambda x: x.softmax(-1), (16, 256)) == 1
    assert streamed(lambda x: (x.exp(), x.cos()), (16, 256)) == 2


def test_what_is_not_says_why(streaming: Streaming):
    streaming(1024)
    (refusal,) = record(torch.sin, (512, 7)).refused
    assert refusal.reason == golden()
    assert "7 iterations" in refusal.reason and "64" in refusal.reason


def test_what_is_left_behind_is_valid(streaming: Streaming):
    """Networks are validated after the passes of a recipe that a user gives."""
    streaming(1)
    x = torch.rand(64, 1024)
    module = daceml.compile(nn.Softplus(), recipe=standard_recipe())
    with torch.no_grad():
        assert torch.allclose(module(x), functional.softplus(x), atol=1e-6)
        assert "streamed arrays" in " ".join(str(daceml.explain(module, x)).split())  # across lines


def test_costs_are_those_of_the_plain_loop(streaming: Streaming):
    def costs() -> list[tuple[int, int, int, int]]:
        module = daceml.compile(Apply(lambda x: x.sigmoid() * 2), backward=False)
        assert isinstance(module, DaceModule)
        variant, _ = module.session.variant((torch.randn(33, 1003),), {})
        steps = variant.program.manifest.steps
        return [(s.unique_bytes, s.total_bytes, s.flops, s.special_functions) for s in steps]

    streaming(0)
    plain = costs()
    streaming(1)
    assert costs() == plain


def test_a_large_layer_as_users_have_it():
    x = torch.randn(8200, 1031)
    assert x.nbytes > config().streaming_bytes
    compiled = daceml.compile(nn.GELU())
    assert streamed(functional.gelu, tuple(x.shape)) == 1
    error = (compiled(x).double() - functional.gelu(x.double())).abs().max()
    assert error < 1e-6
