"""Long sums are exact to a few units in the last place, however loops are written; short ones stay."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import pytest
import torch
from torch import nn
from torch.nn import functional

import daceml
from daceml.codegen.kernel_source import kernel_source
from daceml.compiler.pipeline import onnx_network
from daceml.compiler.stages.lowered_network import optimise
from daceml.compiler.stages.stage_timer import Stages
from daceml.frontend.onnx_export.export import export_program
from daceml.sdfg.outline import Outliner
from daceml.sdfg.scopes import top_maps
from daceml.transformations.hardware.sum_blocks import with_sums_in_blocks
from tests.support.eager_twin import Function

Form = Callable[..., torch.Tensor]

# Of equal terms all roundings have the same sign: two million of them, one after the other, are off by 1e-11.
TERMS = 2**21
# Three levels of at most 256 terms: half a unit in the last place for each of them, of which a sum of equal
# terms makes a third.
LIMIT = 256 * 2.0**-53


def error(found: torch.Tensor, terms: int, dtype: torch.dtype = torch.float64) -> float:
    """Of a sum of tenths, relative."""
    exact = Fraction(torch.tensor(0.1, dtype=dtype).item()) * terms
    return max(float(abs(Fraction(value) - exact) / exact) for value in found.double().reshape(-1).tolist())


FORMS: dict[str, tuple[Form, int]] = {
    "everything": (lambda x: x.sum(), TERMS),
    "few rows": (lambda x: x.reshape(4, -1).sum(1), TERMS // 4),
    "few columns": (lambda x: x.reshape(-1, 3).sum(0), TERMS // 4),
    "odd columns": (lambda x: x.reshape(-1, 3, 67).sum((0, 1)), TERMS // 4 // 67 // 3 * 3),
    "middle": (lambda x: x.reshape(2, -1, 4).sum(1), TERMS // 8),
    "across memory": (lambda x: x.reshape(-1, 8)[:, ::2].sum(), TERMS // 2),
    "several axes": (lambda x: x.reshape(64, 4, -1, 2).sum((0, 2)), TERMS // 8),
}


def tenths(name: str, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    used = {"few columns": TERMS // 4 * 3, "odd columns": TERMS // 4 // 67 // 3 * 3 * 67}
    return torch.full((used.get(name, TERMS),), 0.1, dtype=dtype)


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("name", FORMS)
def test_sums_of_millions_are_exact(name: str, dynamic: bool) -> None:
    function, terms = FORMS[name]
    compiled = daceml.compile(Function(function), backward=False, dynamic=dynamic)
    assert error(compiled(tenths(name)), terms) <= LIMIT


REDUCTIONS: dict[str, Form] = {
    "norm": lambda x: torch.linalg.vector_norm(x),
    "logsumexp": lambda x: x.logsumexp(0),
    "softmax": lambda x: x.softmax(0)[:1] * x.numel(),
    "variance": lambda x: (x + torch.arange(x.shape[0], dtype=x.dtype) % 2).var(correction=0),
    "mean squared error": lambda x: functional.mse_loss(x, -x),
    "layer normalization": lambda x: functional.layer_norm(x * x.cumsum(0).sign(), x.shape, eps=1.0)[:1] + 1,
}
EXACT = {"norm": 0.1 * TERMS**0.5, "logsumexp": None, "softmax": 1.0, "variance": 0.25,
         "mean squared error": 0.04, "layer normalization": 1.0}  # fmt: skip


@pytest.mark.parametrize("name", REDUCTIONS)
def test_what_is_made_of_sums_is_exact(name: str) -> None:
    compiled = daceml.compile(Function(REDUCTIONS[name]), backward=False)
    exact = EXACT[name]
    expected = torch.log(torch.tensor(float(TERMS), dtype=torch.float64)) + 0.1 if exact is None else exact
    assert float((compiled(tenths(name)) / expected - 1).abs().max()) <= LIMIT


def test_variances_are_exact_where_those_of_eager_are_not() -> None:
    """Of zeros and ones the exact variance is known; eager's, updated element by element, is off by 1e-11."""
    x = (torch.rand(TERMS) < 0.5).double()
    ones = int(x.sum())
    exact = Fraction(ones * (TERMS - ones), TERMS * (TERMS - 1))
    found = Fraction(daceml.compile(Function(lambda x: x.var()), backward=False)(x).item())
    assert abs(found / exact - 1) <= LIMIT


def test_gradients_that_are_sums_are_exact() -> None:
    """Of a bias, a scale and a single number."""
    bias, scale, factor = (torch.ones(n, dtype=torch.float64, requires_grad=True) for n in (64, 64, 1))
    x = torch.full((TERMS // 64, 64), 0.1, dtype=torch.float64)
    compiled = daceml.compile(Function(lambda x, b, s, f: ((x * s + 0.1 * b) * f).sum()))
    compiled(x, bias, scale, factor).backward()
    assert bias.grad is not None and scale.grad is not None and factor.grad is not None
    assert error(bias.grad, TERMS // 64) <= LIMIT
    assert error(scale.grad, TERMS // 64) <= LIMIT
    assert error(factor.grad, 2 * TERMS) <= LIMIT


LENGTHS = (0, 1, 2, 127, 128, 129, 255, 256, 257, 383, 4095, 4097, 8193, 16_383, 16_385, 40_001)


@pytest.mark.parametrize("shape", [(), (3,), (1, 3)], ids=str)
def test_sums_of_every_length_have_all_terms(shape: tuple[int, ...]) -> None:
    """Whole numbers: a sum is right or wrong. The length is known, or not."""
    module = Function(lambda x: x.sum(0))
    open_length = daceml.compile(module, backward=False, dynamic=True)
    for length in LENGTHS:
        x = torch.randint(-9, 9, (length, *shape), dtype=torch.float64)
        assert torch.equal(open_length(x), x.sum(0)), length
    for length in LENGTHS[6:11]:
        x = torch.randint(-9, 9, (length, *shape), dtype=torch.float64)
        assert torch.equal(daceml.compile(module, backward=False)(x), x.sum(0)), length


def test_segments_of_every_length_have_all_terms() -> None:
    bags = nn.EmbeddingBag(7, 5, mode="sum", dtype=torch.float64)
    bags.weight.data.copy_(torch.randint(-9, 9, (7, 5)))
    offsets = torch.tensor([0, 0, 1, 257, 600, 5000])
    positions = torch.randint(0, 7, (9001,))
    assert torch.equal(daceml.compile(bags, backward=False)(positions, offsets), bags(positions, offsets))


def kernels(function: Form, *shape: int) -> list[tuple[bool, str]]:
    """Of the program of a function: whether sums are cut, and the text."""
    network = onnx_network(export_program(Function(function), (torch.ones(shape),)), Stages())
    network = optimise(network, Stages()).network
    outliner = Outliner()
    found = [outliner.outline(network.sdfg, network.state, e).kernel for e in top_maps(network.state)]
    return [(with_sums_in_blocks(k.sdfg) is not k.sdfg, kernel_source(k)) for k in found]


def test_only_long_sums_of_floats_are_cut() -> None:
    with torch.no_grad():
        assert [cut for cut, _ in kernels(lambda x: x.sum(-1), 40, 4096)] == [False]
        assert [cut for cut, _ in kernels(lambda x: x.sum(-1), 40, 65_536)] == [True]
        assert [cut for cut, _ in kernels(lambda x: x.amax(-1), 40, 65_536)] == [False]
        assert [cut for cut, _ in kernels(lambda x: x.long().sum(-1), 40, 65_536)] == [False]


def test_a_block_goes_in_vectors() -> None:
    with torch.no_grad():
        ((_, text),) = kernels(lambda x: x.sum(-1), 40, 65_536)
    lines = [line.strip() for line in text.splitlines()]
    place = next(n for n, line in enumerate(lines) if "int k0 = 0; k0 < 128;" in line)
    assert lines[place + 1] == "#pragma GCC ivdep"
    assert lines[place + 2].startswith("for (int v0 = 0; v0 < 32;")
    (added,) = [line for line in lines[place : place + 16] if "ReductionType::Sum" in line]
    assert "_part + v0" in added, "the terms go into the sums of the block"
