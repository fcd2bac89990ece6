"""Sums of columns beside loops over rows: where they are taken, that values stay, and what is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import dace
import pytest
import torch
from torch.nn import functional

import daceml
from tests.support.computations import Apart
from tests.support.golden import golden
from tests.support.sampling import sampled
from tests.support.tensor_functions import Apply, Function, optimised


def taken(function: Function, *shapes: tuple[int, ...]) -> int:
    """How many sums are part of a loop over rows."""
    (record,) = (p for p in optimised(function, *shapes).passes if p.name == "fuse_subgraphs")
    return record.applied.get("sums next to rows", 0)


def reasons(function: Function, *shapes: tuple[int, ...]) -> str:
    (record,) = (p for p in optimised(function, *shapes).passes if p.name == "fuse_subgraphs")
    return "; ".join(refusal.reason for refusal in record.refused)


def loops(function: Function, *shapes: tuple[int, ...]) -> int:
    network = optimised(function, *shapes)
    scopes = network.state.scope_dict()
    return sum(isinstance(n, dace.nodes.MapEntry) and scopes[n] is None for n in network.state.nodes())


Results = torch.Tensor | tuple[torch.Tensor, ...] | dict[str, torch.Tensor]


def tensors(found: Results) -> tuple[torch.Tensor, ...]:
    if isinstance(found, dict):
        return tuple(found.values())
    return found if isinstance(found, tuple) else (found,)


def biased(x: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return functional.gelu(x + b)


def scaled(x: torch.Tensor, s: torch.Tensor) -> torch.Tensor:
    """Several sums of one loop: that of s, and of a bias behind it."""
    return torch.tanh(x * s + s.sin())


def normalised(x: torch.Tensor, s: torch.Tensor) -> torch.Tensor:
    return functional.layer_norm(x, x.shape[-1:], s, s.cos())


def root_mean_square(x: torch.Tensor, s: torch.Tensor) -> torch.Tensor:
    return functional.rms_norm(x, x.shape[-1:], s) * 2


def twice(x: torch.Tensor, s: torch.Tensor) -> torch.Tensor:
    """What one loop over rows writes, another one reads."""
    return functional.layer_norm(functional.gelu(x + s), x.shape[-1:], s)


def gathered(x: torch.Tensor, s: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x + s, -1) * s


GRADIENTS: dict[str, Function] = {
    f.__name__: f for f in (biased, scaled, normalised, root_mean_square, twice, gathered)
}
# one row, fewer rows than chunks, rows that do not divide, columns that do not, several dimensions of rows
SHAPES = [
    (1, 64),
    (3, 64),
    (7, 17),
    (1000, 17),
    (131, 64),
    (2048, 33),
    (4, 33, 64),
    (129, 2, 48),
    (3, 5, 11, 24),
]


def gradients(run: Callable[..., Any], *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Of the sine of every result, so that cotangents differ from element to element."""
    leaves = [x.detach().clone().requires_grad_() for x in inputs]
    sum((r.sin().sum() for r in tensors(run(*leaves))), torch.zeros((), dtype=inputs[0].dtype)).backward()
    assert all(leaf.grad is not None for leaf in leaves)
    return tuple(leaf.grad for leaf in leaves if leaf.grad is not None)


def pulled_back(
    run: Callable[..., Any], inputs: Sequence[torch.Tensor], cotangent: torch.Tensor
) -> tuple[torch.Tensor, ...]:
    """Of every result, whose cotangents are the same."""
    leaves = [x.detach().clone().requires_grad_() for x in inputs]
    results = tensors(run(*leaves))
    return torch.autograd.grad(results, leaves, [cotangent.clone() for _ in results])


def numbers(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize(
    "shape",
    sampled(
        [(shape,) for shape in SHAPES],
        ((7, 17),),
        ((131, 64),),
        ((2048, 33),),
        ((129, 2, 48),),
        ((3, 5, 11, 24),),
    ),
    ids=str,
)
def test_gradients_are_those_of_torch(shape: tuple[int, ...]) -> None:
    x, s = numbers(*shape), numbers(shape[-1], seed=1)
    module = Apply(lambda x, s: tuple(f(x, s) for f in GRADIENTS.values()))
    ours = gradients(daceml.compile(module), x, s)
    # sums of at most 2,048 float64 terms around 1, and rows divided by their deviation
    torch.testing.assert_close(ours, gradients(module, x, s), rtol=1e-10, atol=1e-10)


def assert_all_close(
    names: Iterable[str],
    found: tuple[torch.Tensor, ...],
    expected: tuple[torch.Tensor, ...],
    *,
    rtol: float,
    atol_of_largest: float,
) -> None:
    """Gradients of x and s of every function, each compared with the largest element of its own."""
    titles = [f"gradient of {name}: {part}" for name in names for part in "xs"]
    for title, ours, exact in zip(titles, found, expected, strict=True):
        atol = atol_of_largest * float(exact.abs().max())
        torch.testing.assert_close(
            ours.double(), exact, rtol=rtol, atol=atol, msg=lambda text, title=title: f"{title}\n{text}"
        )


def test_sums_of_float32_are_exact_to_a_few_places() -> None:
    module = Apart(**GRADIENTS)
    inputs = module.copies(numbers(4099, 48).float(), numbers(48, seed=1).float())
    found = gradients(daceml.compile(module), *inputs)
    expected = gradients(module, *(x.double() for x in inputs))
    # terms have float32 errors that do not add up, the sum has none: it runs in float64
    assert_all_close(GRADIENTS, found, expected, rtol=2e-5, atol_of_largest=2e-5)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_shorter_types_are_widened(dtype: torch.dtype) -> None:
    module = Apart(**{f.__name__: f for f in (biased, normalised, root_mean_square)})
    inputs = module.copies(numbers(200, 48).to(dtype), numbers(48, seed=1).to(dtype))
    cotangent = numbers(200, 48, seed=2).to(dtype)
    found = pulled_back(daceml.compile(module), inputs, cotangent)
    expected = pulled_back(module, [x.double() for x in inputs], cotangent.double())
    epsilon = torch.finfo(dtype).eps
    # a gradient is rounded where it is stored, and so is that of what is doubled; sums run in float32
    assert_all_close(module.functions, found, expected, rtol=2 * epsilon, atol_of_largest=epsilon)


def test_a_batch_of_any_size_is_right() -> None:
    module = Apply(lambda x, s: (biased(x, s), normalised(x, s), root_mean_square(x, s)))
    compiled = daceml.compile(module, dynamic=True)
    s = numbers(40, seed=1)
    for rows in (64, 9, 257, 1, 31, 1000):
        x = numbers(rows, 3, 40, seed=rows)
        # sums of 3,000 float64 terms around 1
        torch.testing.assert_close(gradients(compiled, x, s), gradients(module, x, s), rtol=1e-10, atol=1e-10)


def test_no_rows_give_sums_of_nothing() -> None:
    module = Apply(lambda x, s: (biased(x, s), normalised(x, s)))
    s = numbers(40, seed=1)
    for compiled, sizes in (
        (daceml.compile(module), (0,)),
        (daceml.compile(module, dynamic=True), (64, 9, 0)),
    ):
        for rows in sizes:
            x = numbers(rows, 40)
            found, expected = gradients(compiled, x, s), gradients(module, x, s)
            torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)


def test_cotangents_in_any_order_of_memory() -> None:
    x, s = numbers(300, 48), numbers(48, seed=1)
    module = Apply(normalised)
    compiled = daceml.compile(module)
    for cotangent in (numbers(48, 300).T, numbers(300, 96)[:, ::2], numbers(1, 48).expand(300, 48)):
        ours, eager = (pulled_back(run, (x, s), cotangent) for run in (compiled, module))
        # sums of 300 float64 products
        torch.testing.assert_close(ours, eager, rtol=1e-11, atol=1e-11)


def test_nan_stays_in_its_row_and_its_columns() -> None:
    x, s = numbers(300, 48), numbers(48, seed=1)
    x[7, 3], x[250, 40] = torch.nan, torch.inf
    module = Apply(biased)
    ours, eager = gradients(daceml.compile(module), x, s), gradients(module, x, s)
    torch.testing.assert_close(ours, eager, rtol=1e-11, atol=1e-11, equal_nan=True)


def test_one_thread_gives_the_bits_of_two() -> None:
    x, s = numbers(1000, 96).float(), numbers(96, seed=1).float()
    compiled = daceml.compile(Apply(lambda x, s: (biased(x, s), normalised(x, s))))
    threads = torch.get_num_threads()
    found: list[tuple[torch.Tensor, ...]] = []
    try:
        for count in (1, 2):
            torch.set_num_threads(count)
            found.append(gradients(compiled, x, s))
    finally:
        torch.set_num_threads(threads)
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))


def beside(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    y = torch.tanh(x)
    return y, y.sum(0), (x * y).sum(0), x.sum(0)


def test_sums_of_what_a_loop_reads_and_writes_are_part_of_it() -> None:
    assert taken(beside, (1024, 48)) == 3
    assert loops(beside, (1024, 48)) == 4, "one over rows, and one for the shares of each sum"
    x = numbers(1024, 48)
    with torch.no_grad():
        ours, eager = daceml.compile(Apply(beside))(x), beside(x)
    # sums of 1,024 float64 numbers around 1
    torch.testing.assert_close(ours, eager, rtol=1e-11, atol=1e-11)


def test_sums_of_the_same_rows_are_one_loop_without_another_one() -> None:
    def sums(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x.sum(0), (x * x).sum(0)

    assert taken(sums, (16384, 96)) == 2
    assert loops(sums, (16384, 96)) == 3
    x = numbers(16384, 96)
    with torch.no_grad():
        torch.testing.assert_close(daceml.compile(Apply(sums))(x), sums(x), rtol=1e-11, atol=1e-11)


def test_several_dimensions_of_rows_and_of_columns() -> None:
    def sums(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = x.sin()
        return y, y.sum((0, 1)), (y * x).sum((0, 1, 2))

    assert taken(sums, (9, 37, 4, 24)) == 2
    x = numbers(9, 37, 4, 24)
    with torch.no_grad():
        torch.testing.assert_close(daceml.compile(Apply(sums))(x), sums(x), rtol=1e-11, atol=1e-11)


def test_what_is_no_sum_of_columns_stays_apart() -> None:
    assert not taken(lambda x: (x.sin(), x.sin().sum(1)), (1024, 48)), "rows, not columns"
    assert not taken(lambda x: (x.sin(), x.sin().amax(0)), (1024, 48)), "no sum"
    assert not taken(lambda x: (x.sin(), x.sin().sum((0, 2))), (1024, 48, 40)), "the channels of an image"
    assert not taken(lambda x: x - x.mean(0), (1024, 48)), "the rows read the sum"
    assert not taken(lambda x: (x.sin(), x.sin().T.exp().sum(0)), (512, 256)), "other rows"


@pytest.mark.parametrize(
    ("function", "shape", "fact"),
    [
        (beside, (64, 48), "64 rows"),
        (beside, (1024, 8), "[8] columns"),
        (beside, (1024, 5000), "[5000] sums"),
        (lambda x: x.sum(0), (1024, 48), "196608 bytes"),
    ],
)
def test_refusals_say_why(function: Function, shape: tuple[int, ...], fact: str) -> None:
    said = reasons(function, shape)
    assert said == golden()
    assert fact in said


def test_a_bias_of_rows_is_not_summed_over_rows() -> None:
    """Gradients of what is broadcast along columns, and along both, are other sums."""
    x = numbers(300, 48)
    module = Apart(**{"of rows": biased, "of all": biased, "of columns": biased})
    inputs = [x, numbers(300, 1), x.clone(), numbers(1, 1), x.clone(), numbers(1, 48)]
    ours, eager = gradients(daceml.compile(module), *inputs), gradients(module, *inputs)
    torch.testing.assert_close(ours, eager, rtol=1e-11, atol=1e-11)
