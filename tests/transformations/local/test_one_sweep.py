"""Statistics of long rows in one sweep: where, that values are those of two sweeps, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn import functional

import daceml
from daceml.transformations import Step, standard_recipe
from daceml.transformations.local.chunked_rows import Cut, cut
from daceml.transformations.local.one_sweep import sweep_rows_once
from tests.support.computations import Apart
from tests.support.golden import golden
from tests.support.tensor_functions import Apply, Function, optimised

# Chunks so short that small rows have many of them
RECIPE = (
    standard_recipe()
    .without("sweep_rows_once")
    .before("fuse_subgraphs", Step(sweep_rows_once, {"chunk": 64, "long_bytes": 1024}))
)


def softmax(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x, -1)


def log_softmax(x: torch.Tensor) -> torch.Tensor:
    return torch.log_softmax(x * 2, -1)


def logsumexp(x: torch.Tensor) -> torch.Tensor:
    return torch.logsumexp(x, -1)


def moments(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return x.var(-1), x.mean(-1)


def layer_norm(x: torch.Tensor) -> torch.Tensor:
    return functional.layer_norm(x, x.shape[-1:])


def spelled_out(x: torch.Tensor) -> torch.Tensor:
    centred = x - x.mean(-1, keepdim=True)
    return centred / torch.sqrt((centred * centred).mean(-1, keepdim=True) + 1e-5)


def spelled_out_softmax(x: torch.Tensor) -> torch.Tensor:
    exponentials = torch.exp(x - x.amax(-1, keepdim=True))
    return exponentials / exponentials.sum(-1, keepdim=True)


def group_norm(x: torch.Tensor) -> torch.Tensor:
    return functional.group_norm(x, 2)


def batch_norm(x: torch.Tensor) -> torch.Tensor:
    return functional.batch_norm(x, None, None, training=True)


STATISTICS = (softmax, log_softmax, logsumexp, moments, layer_norm, spelled_out, spelled_out_softmax)
OF_IMAGES = (group_norm, batch_norm)
FUNCTIONS: dict[str, Function] = {f.__name__: f for f in (*STATISTICS, *OF_IMAGES)}
# one row; rows that do not divide into chunks; several dimensions of rows, and of a row; many rows
SHAPES = [(1, 777), (2, 4, 9, 37), (40, 300)]


def tensors(found: torch.Tensor | tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
    return found if isinstance(found, tuple) else (found,)


def swept(function: Function, *shapes: tuple[int, ...]) -> int:
    (record,) = (p for p in optimised(function, *shapes).passes if p.name == "sweep_rows_once")
    return record.applied.get("statistics in one sweep", 0)


def reasons(function: Function, *shapes: tuple[int, ...]) -> str:
    (record,) = (p for p in optimised(function, *shapes).passes if p.name == "sweep_rows_once")
    return "; ".join(refusal.reason for refusal in record.refused)


def in_chunks(function: Function, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    with torch.no_grad():
        return tensors(daceml.compile(Apply(function), recipe=RECIPE)(x))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_few_long_rows_are_swept_once(name: str):
    shape = (2, 4, 150, 151) if FUNCTIONS[name] in OF_IMAGES else (3, 20_000)
    assert swept(FUNCTIONS[name], shape) == 1


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_values_are_those_of_torch(shape: tuple[int, ...]):
    torch.manual_seed(0)
    images = len(shape) > 2
    module = Apart(**{name: f for name, f in FUNCTIONS.items() if images or f not in OF_IMAGES})
    inputs = module.copies(torch.randn(shape, dtype=torch.float64) * 3)
    with torch.no_grad():
        found = daceml.compile(module, recipe=RECIPE)(*inputs)
    torch.testing.assert_close(found, module(*inputs), rtol=1e-12, atol=1e-13)


def test_gradients_are_those_of_torch():
    torch.manual_seed(0)
    module = Apart(**{f.__name__: f for f in (softmax, layer_norm, batch_norm)})
    inputs = [x.requires_grad_() for x in module.copies(torch.randn(2, 3, 5, 61, dtype=torch.float64))]

    def gradients(run: Any) -> dict[str, torch.Tensor]:
        sums = [(y**3).sum() for y in run(*inputs).values()]
        return dict(zip(module.functions, torch.autograd.grad(sums, inputs), strict=True))

    found = gradients(daceml.compile(module, recipe=RECIPE))
    torch.testing.assert_close(found, gradients(module), rtol=1e-10, atol=1e-12)


def rows_with_specials() -> torch.Tensor:
    """Of 300 elements: chunks of -inf, rows of -inf, both infinities, NaN, and what overflows a quotient."""
    torch.manual_seed(0)
    x = torch.randn(11, 300)
    x[0, :130] = -torch.inf
    x[1] = -torch.inf
    x[2, 70] = torch.inf
    x[3, 70], x[3, 5] = torch.inf, -torch.inf
    x[4, 299] = torch.nan
    x[5, :128], x[5, 128:] = -torch.inf, -1000 - torch.arange(172.0)
    x[6, :100], x[6, 100:] = -3e38, 3e38
    x[7, 0], x[7, 200] = torch.inf, torch.inf
    x[8, :64], x[8, 64:] = torch.inf, -torch.inf
    x[9] *= 1e30
    x[10] *= 1e-42
    return x


def test_infinities_and_nan_are_where_torch_has_them():
    module = Apart(
        **{f.__name__: f for f in (softmax, log_softmax, logsumexp, spelled_out_softmax, layer_norm)}
    )
    *inputs, last = module.copies(rows_with_specials())
    inputs.append(last[[0, 1, 2, 3, 4, 5, 7, 8, 10]])  # torch's own sums of squares overflow elsewhere
    with torch.no_grad():
        found = daceml.compile(module, recipe=RECIPE)(*inputs)
    torch.testing.assert_close(found, module(*inputs), rtol=3e-6, atol=1e-7, equal_nan=True)


def test_a_variance_that_overflows_is_infinite():
    """Two sweeps give infinity for the row of 1e30, not NaN."""
    variance, mean = in_chunks(moments, rows_with_specials()[[9]])
    assert variance.isinf().all()
    assert mean.isfinite().all()


@pytest.mark.parametrize(
    ("dtype", "offset", "spread"), [(torch.float32, 1e8, 1e3), (torch.float64, 1e12, 1.0)]
)
def test_a_variance_far_from_zero_is_as_good_as_in_two_sweeps(
    dtype: torch.dtype, offset: float, spread: float
):
    """Also where chunks differ from each other; what E[x^2] - E[x]^2 gives is noise."""
    torch.manual_seed(0)
    noise = torch.randn(4, 5000, dtype=torch.float64) * spread
    noise[1, 2500:] += 5 * spread
    noise[2] += torch.linspace(0, 9 * spread, 5000)
    noise[3, ::2] -= 7 * spread
    x = (noise + offset).to(dtype)
    exact = (x.double() - offset).var(-1)
    variance, mean = in_chunks(moments, x)
    naive = (x.square().mean(-1) - x.mean(-1).square()) * 5000 / 4999
    assert ((naive.double() - exact) / exact).abs().max() > 1
    rounding = torch.finfo(dtype).eps * offset / spread  # of a mean, whose square two sweeps add, too
    torch.testing.assert_close(variance.double(), exact, rtol=rounding**2 + 1e-6, atol=0)
    torch.testing.assert_close(mean.double(), x.double().mean(-1), rtol=1e-7, atol=0)


@pytest.mark.parametrize("name", ["softmax", "layer_norm"])
def test_half_precision_is_summed_up_as_before(name: str):
    x = torch.randn(3, 1000, dtype=torch.bfloat16)
    (found,) = in_chunks(FUNCTIONS[name], x)
    torch.testing.assert_close(found, FUNCTIONS[name](x))


def test_no_rows_and_constant_rows():
    assert in_chunks(softmax, torch.ones(0, 500))[0].shape == (0, 500)
    assert (in_chunks(layer_norm, torch.full((2, 500), 7.0))[0] == 0).all()


def test_inputs_may_have_the_names_of_what_a_point_keeps():
    def named(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
        return torch.softmax(first + second, -1) + second

    torch.manual_seed(0)
    x, y = torch.randn(2, 3, 500, dtype=torch.float64)
    with torch.no_grad():
        found = daceml.compile(Apply(named), recipe=RECIPE)(x, y)
    torch.testing.assert_close(found, named(x, y))


def test_squares_and_differences_are_not_kept():
    """What was spelled out is no array any more."""
    network = optimised(spelled_out, (2, 40_000))
    large = [a for a, d in network.sdfg.arrays.items() if d.transient and d.total_size >= 80_000]
    assert set(large) <= {*network.outputs}


@pytest.mark.parametrize(
    ("function", "shape", "fact"),
    [
        (softmax, (3, 1000), "3 rows of 4000 bytes"),
        (softmax, (64, 20_000), "64 rows"),
        (lambda x: torch.softmax(x, 0), (20_000, 5), "memory"),
    ],
)
def test_a_refusal_says_why(function: Function, shape: tuple[int, ...], fact: str):
    assert swept(function, shape) == 0
    said = reasons(function, shape)
    assert said == golden()
    assert fact in said


def test_what_only_looks_alike_stays():
    def of_others(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.exp(y - x.amax(-1, keepdim=True)).sum(-1)

    def about_the_sum(x: torch.Tensor) -> torch.Tensor:
        return (x - x.sum(-1, keepdim=True)).square().sum(-1)

    assert swept(of_others, (3, 20_000), (3, 20_000)) == 0
    assert swept(about_the_sum, (3, 20_000)) == 0


def test_rows_are_cut_into_chunks_that_divide_where_they_can():
    assert cut((1024,), 100) == (Cut(chunks=(16,), sizes=(64,), begin=0),)
    assert cut((1000, 7), 70) == (Cut(chunks=(100,), sizes=(10, 7), begin=0),)
    whole, rest = cut((5, 211), 100)
    assert (whole, rest) == (
        Cut(chunks=(5, 2), sizes=(100,), begin=0),
        Cut(chunks=(5,), sizes=(11,), begin=200),
    )
