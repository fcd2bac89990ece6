"""Elements that loops touch, counted once: strides, windows, blocks, and indices that are not affine."""

from __future__ import annotations

from typing import Any

import dace
import numpy as np
import pytest
import torch
from torch import nn

from daceml.sdfg.costs import kernel_cost
from daceml.sdfg.external import AtenCall
from daceml.sdfg.network_costs import external_cost
from daceml.sdfg.sizes import number
from daceml.sdfg.touched_elements import touched
from daceml.tuning.model_call import Subject
from daceml.tuning.variant import Variant


def _map(**ranges: str) -> Any:
    state = dace.SDFG("one").add_state()
    entry, _ = state.add_map("loops", ranges)
    return entry


@pytest.mark.parametrize(
    ("index", "ranges", "expected"),
    [
        ("2*i, j", {"i": "0:5", "j": "0:7"}, 35),
        ("i, 3", {"i": "0:5", "j": "0:7"}, 5),
        ("2*i + k, j", {"i": "0:5", "k": "0:3", "j": "0:7"}, 11 * 7),
        ("3*i + k", {"i": "0:5", "k": "0:2"}, 10),
        ("i", {"i": "0:20:4"}, 5),
        ("4 - i", {"i": "0:5"}, 5),
        ("2*i:2*i + 2", {"i": "0:5"}, 10),
        ("i:i + 3", {"i": "0:5"}, 7),
        ("0:6, i", {"i": "0:5"}, 30),
    ],
)
def test_an_affine_access_touches_what_a_list_of_its_elements_has(
    index: str, ranges: dict[str, str], expected: int
):
    region = touched(dace.subsets.Range.from_string(index), [_map(**ranges)])
    assert region is not None and region.elements == expected
    seen = np.zeros((100, 100) if "," in index else 100, dtype=bool)
    loops = {name: range(*map(int, text.split(":"))) for name, text in ranges.items()}
    for values in np.ndindex(*(len(loop) for loop in loops.values())):
        given = {name: loop[n] for (name, loop), n in zip(loops.items(), values, strict=True)}
        parts = [
            slice(*(eval(side, None, given) for side in part.split(":")))
            if ":" in part
            else eval(part, None, given)
            for part in index.split(",")
        ]
        seen[tuple(parts)] = True
    assert seen.sum() == expected


@pytest.mark.parametrize(
    ("index", "ranges"),
    [
        ("i, i", {"i": "0:5"}),
        ("i % 3", {"i": "0:5"}),
        ("int_floor(i, 2)", {"i": "0:5"}),
        ("i*j", {"i": "0:5", "j": "0:5"}),
        ("Min(i, 3)", {"i": "0:5"}),
        ("2*i + k", {"i": "0:N", "k": "0:3"}),
    ],
)
def test_what_is_not_affine_is_not_known(index: str, ranges: dict[str, str]):
    assert touched(dace.subsets.Range.from_string(index), [_map(**ranges)]) is None


@pytest.mark.parametrize("inner", ["0:i + 1", "i:Min(i + 4, 30)"])
def test_a_loop_whose_range_depends_on_another_is_not_known(inner: str):
    entries = [_map(j=inner), _map(i="0:5")]
    assert touched(dace.subsets.Range.from_string("j"), entries) is None
    assert touched(dace.subsets.Range.from_string("i, j"), entries) is None


def test_a_symbolic_size_stays_a_symbol():
    region = touched(dace.subsets.Range.from_string("2*i, j"), [_map(i="0:N", j="0:3")])
    assert region is not None and number(region.elements, {"N": 10}) == 30


def test_accesses_of_the_same_elements_have_one_key():
    same, again, other = (
        touched(dace.subsets.Range.from_string(index), [_map(**ranges)])
        for index, ranges in (("2*i, j", {"i": "0:5", "j": "0:7"}), ("2*a, b", {"a": "0:5", "b": "0:7"}),
                              ("2*i + 1, j", {"i": "0:5", "j": "0:7"}))
    )  # fmt: skip
    assert same is not None and again is not None and other is not None
    assert same.key == again.key != other.key


def _kernel(ranges: dict[str, str], reads: list[str], writes: str, **shapes: list[int]) -> dace.SDFG:
    """One map over a tasklet that adds one to the sum of what it reads."""
    sdfg = dace.SDFG("kernel")
    for name, shape in shapes.items():
        sdfg.add_array(name, shape, dace.float32)
    given = {f"r{n}": dace.Memlet(text) for n, text in enumerate(reads)}
    sdfg.add_state().add_mapped_tasklet(
        "step", ranges, given, f"w = {' + '.join(given)} + 1", {"w": dace.Memlet(writes)}, external_edges=True
    )
    return sdfg


@pytest.mark.parametrize(
    ("sdfg", "unique", "total"),
    [
        (_kernel({"i": "0:8", "j": "0:32"}, ["x[i, 2*j]"], "y[i, j]", x=[8, 64], y=[8, 32]), 512, 512),
        (_kernel({"i": "0:32"}, ["x[i]"], "x[i]", x=[64]), 32, 64),
        (_kernel({"i": "0:63"}, ["x[i]", "x[i + 1]"], "y[i]", x=[64], y=[63]), 64 + 63, 3 * 63),
    ],
    ids=["every other element", "in place", "neighbors"],
)
def test_unique_bytes_of_a_kernel_are_those_that_it_touches(sdfg: dace.SDFG, unique: int, total: int):
    cost = kernel_cost(sdfg)
    assert (cost.unique_bytes, cost.total_bytes) == (4 * unique, 4 * total)


class Strided(nn.Module):
    def __init__(self, window: int) -> None:
        super().__init__()
        self.layer = nn.Conv2d(32, 64, window, stride=2, padding=window // 2, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x)


@pytest.mark.parametrize(("window", "share"), [(1, 0.25), (3, 1)])
def test_a_convolution_reads_the_rows_under_its_windows(window: int, share: float):
    model, x = Strided(window).eval(), torch.randn(2, 32, 64, 64)
    (plan,) = Subject(model, (x,), {}, training=False).lower(Variant(only=())).plans
    (cost,) = (
        external_cost(step.action, plan.network) for step in plan.steps if isinstance(step.action, AtenCall)
    )
    moved = share * x.numel() + 2 * 64 * 32 * 32 + model.layer.weight.numel()
    assert cost.unique_bytes == 4 * moved
