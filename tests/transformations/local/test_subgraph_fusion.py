"""fuse_subgraphs: where maps become one, that values stay, and what it says where they do not."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

import daceml
from daceml.sdfg.network_costs import maps_cost
from tests.support.computations import Apart
from tests.support.golden import golden
from tests.support.sampling import sampled
from tests.support.tensor_functions import Apply, Function, optimised


def maps(function: Function, *shapes: tuple[int, ...]) -> int:
    return maps_cost(optimised(function, *shapes))[0]


def reasons(function: Function, *shapes: tuple[int, ...]) -> set[str]:
    passes = optimised(function, *shapes).passes
    (record,) = (p for p in passes if p.name == "fuse_subgraphs")
    return {refusal.reason for refusal in record.refused}


def tensors(found: torch.Tensor | tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
    return found if isinstance(found, tuple) else (found,)


def standardised(x: torch.Tensor) -> torch.Tensor:
    return (x - x.mean(-1, keepdim=True)) / (x.var(-1, keepdim=True, correction=0) + 1e-5).sqrt()


def by_channel(x: torch.Tensor) -> torch.Tensor:
    centred = x - x.mean((0, 2), keepdim=True)
    return torch.relu(centred / (centred.square().mean((0, 2), keepdim=True) + 1e-5).sqrt())


def peak_only(x: torch.Tensor) -> torch.Tensor:
    """Finds elements by equality: a value that is computed twice must be the same twice."""
    y = x * 1.7 + 0.3
    return torch.where(y == y.amax(-1, keepdim=True), y, torch.zeros_like(y))


def peak_by_difference(x: torch.Tensor) -> torch.Tensor:
    y = x * 1.7
    # an array of zeros would be that of `peak_only`, and both one loop of a joint program
    return torch.where(y - y.amax(-1, keepdim=True) == 0, y, torch.full_like(y, -1))


def two_results(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    e = x.exp()
    return e * 2, e + e.sum(-1, keepdim=True)


def permuted(x: torch.Tensor) -> torch.Tensor:
    y = (x * 2).transpose(1, 2)
    return y - y.amax(2, keepdim=True)


def shifted(x: torch.Tensor) -> torch.Tensor:
    y = x.sinh()
    return y[:, 1:] * y[:, :-1]


FUNCTIONS: dict[str, Function] = {
    "softmax": lambda x: torch.softmax(x * 0.5, -1),
    "softmax of columns": lambda x: torch.softmax(x, 1),
    "log_softmax": lambda x: functional.log_softmax(x, -1),
    "standardised": standardised,
    "by channel": by_channel,
    "peak only": peak_only,
    "peak by difference": peak_by_difference,
    "two results": two_results,
    "permuted": permuted,
    "shifted": shifted,
    "extrema": lambda x: (x - x.amin(-1, keepdim=True)) / (x.amax(-1, keepdim=True) + 3),
    "product": lambda x: x / (1 + x.prod(-1, keepdim=True)),
    "everything": lambda x: x - x.mean(),
    "norm": lambda x: x / x.norm(dim=-1, keepdim=True),
}
SHAPES = [(4, 3, 70), (33, 2, 1), (3, 40, 31), (0, 3, 40)]


def joint(*names: str) -> Apart:
    return Apart(**{name: FUNCTIONS[name] for name in names})


@pytest.mark.parametrize(
    "shape", sampled([(s,) for s in SHAPES], *[(s,) for s in SHAPES if s != (4, 3, 70)]), ids=str
)
def test_values_are_those_of_torch(shape: tuple[int, ...]) -> None:
    x = torch.randn(shape, dtype=torch.float64)
    need_elements = ("extrema", "softmax of columns", "standardised")
    module = joint(*(name for name in FUNCTIONS if x.numel() or name not in need_elements))
    inputs = module.copies(x)
    with torch.no_grad():
        ours, eager = daceml.compile(module)(*inputs), module(*inputs)
    # sums of at most 128 float64 numbers, and a variance of their differences
    torch.testing.assert_close(ours, eager, rtol=1e-12, atol=1e-12, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_shorter_types_round_where_torch_rounds(dtype: torch.dtype) -> None:
    module = joint("softmax", "standardised", "peak only", "peak by difference", "two results")
    inputs = module.copies(torch.randn(5, 6, 70).to(dtype))
    with torch.no_grad():
        ours, eager = daceml.compile(module)(*inputs), module(*inputs)
    # a few roundings of one operator after the other, each of them torch's or one place beside it
    epsilon = torch.finfo(dtype).eps
    torch.testing.assert_close(ours, eager, rtol=8 * epsilon, atol=8 * epsilon)


def test_gradients_are_those_of_torch() -> None:
    module = joint("softmax", "standardised", "by channel", "permuted", "two results")
    inputs = module.copies(torch.randn(3, 4, 70, dtype=torch.float64))

    def gradients(run: Any) -> dict[str, torch.Tensor]:
        leaves = [x.clone().requires_grad_() for x in inputs]
        sums = [r.sin().sum() for found in run(*leaves).values() for r in tensors(found)]
        return dict(zip(module.functions, torch.autograd.grad(sums, leaves), strict=True))

    # sums of 280 float64 products
    torch.testing.assert_close(gradients(daceml.compile(module)), gradients(module), rtol=1e-11, atol=1e-12)


def test_nan_and_infinity_go_where_torch_has_them() -> None:
    x = torch.randn(6, 70)
    x[0, 3], x[1, 40], x[2, 69], x[3] = torch.nan, torch.inf, -torch.inf, -torch.inf
    for function in (FUNCTIONS["softmax"], FUNCTIONS["extrema"], FUNCTIONS["log_softmax"]):
        module = Apply(function)
        with torch.no_grad():
            torch.testing.assert_close(daceml.compile(module)(x), module(x), equal_nan=True)


def test_a_batch_of_another_size_is_right() -> None:
    module = Apply(FUNCTIONS["standardised"])
    compiled = daceml.compile(module, dynamic=True)
    with torch.no_grad():
        for rows in (4, 9, 1):
            x = torch.randn(rows, 70, dtype=torch.float64)
            torch.testing.assert_close(compiled(x), module(x), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", ["softmax", "log_softmax", "standardised", "by channel", "two results"])
def test_what_shares_rows_is_one_map(name: str) -> None:
    assert maps(FUNCTIONS[name], (64, 48, 40)) == 1


def test_dropping_parallelism_is_refused() -> None:
    assert "\n".join(sorted(reasons(FUNCTIONS["everything"], (64, 48, 40)))) == golden()
    (few,) = reasons(FUNCTIONS["softmax of columns"], (4, 8000, 1))
    assert few == golden()
    assert "4 iterations" in few


def test_sums_over_a_part_of_a_dimension_go_along_memory() -> None:
    """A channel has two parts, its group and its place there; the loop over places is the outermost."""

    def groups(x: torch.Tensor) -> torch.Tensor:
        return functional.group_norm(x, 4)

    count, cost = maps_cost(optimised(groups, (16, 96, 30, 40)))
    assert (count, cost.strided_accesses) == (1, 0)


def test_going_across_memory_is_refused() -> None:
    (reason,) = reasons(lambda x: x - x.mean(0), (640, 480))
    assert reason == golden()
    assert "large stride" in reason


def test_rows_that_are_too_long_to_keep_are_not_kept() -> None:
    (reason,) = reasons(lambda x: torch.softmax(x.exp(), -1), (64, 40000))
    assert reason == golden()
    assert "[40000] elements" in reason


def test_what_a_library_reads_in_between_stays_apart() -> None:
    def between(x: torch.Tensor) -> torch.Tensor:
        y = x.exp()
        return y + y @ torch.ones(48, 48)

    (reason,) = reasons(between, (640, 48))
    assert reason == golden()
    assert "another step" in reason


def test_neighbours_of_neighbours_are_not_computed_again_for_ever() -> None:
    def smoothed(x: torch.Tensor) -> torch.Tensor:
        for _ in range(12):
            x = x[:, 1:] * 0.5 + x[:, :-1] * 0.5
        return x

    x = torch.randn(32, 200, dtype=torch.float64)
    module = Apply(smoothed)
    fused, plain = daceml.compile(module), daceml.compile(module, auto_optimize=False)
    with torch.no_grad():
        torch.testing.assert_close(fused(x), module(x), rtol=1e-13, atol=1e-13)  # 36 roundings
    # 2^12 times as much, if every step computed both neighbours from the start
    assert daceml.explain(fused, x).flops <= 12 * daceml.explain(plain, x).flops


def test_a_nest_names_every_module_that_is_in_it() -> None:
    module = nn.Sequential(nn.Softmax(-1), nn.LayerNorm(40)).eval()
    (step,) = daceml.explain(daceml.compile(module, backward=False), torch.randn(64, 40)).steps
    assert set(step.module_path.split(", ")) == {"0", "1"}
