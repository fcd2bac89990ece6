"""Sums in lanes: where they apply, and that sums and extrema stay."""

from __future__ import annotations

from pathlib import Path

import dace
import torch

import daceml
from daceml.sdfg.lanes import FEWEST_LANES, LANES, in_lanes, lanes_of
from tests.support.nests import ROWS, arrays, run, shares
from tests.support.tensor_functions import Apply, optimised


def test_lanes_give_the_same_sum_and_extremum(tmp_path: Path) -> None:
    for columns in (FEWEST_LANES, LANES + 1, 5 * LANES + 3):
        sdfg = arrays(columns)
        nest = in_lanes(sdfg, shares(columns))
        assert nest.local["total_lanes"] == ((lanes_of(columns),), dace.float64)
        assert [loop.sequential for loop in nest.loops if any(w.operator for w in loop.writes)][-1] == 1
        ours, expected = run(nest, columns, tmp_path, f"lanes{columns}")
        torch.testing.assert_close(ours, expected)


def test_short_rows_and_columns_stay_one_after_the_other() -> None:
    short = shares(FEWEST_LANES - 1)
    assert in_lanes(arrays(FEWEST_LANES - 1), short).loops == short.loops
    sdfg = arrays(2 * LANES)
    sdfg.arrays["X"].strides = (1, ROWS)
    across = shares(2 * LANES)
    assert in_lanes(sdfg, across).loops == across.loops


def test_images_of_short_rows_are_added_up_in_lanes() -> None:
    def statistics(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x.mean((1, 2, 3, 4)), x.amax((2, 3, 4))

    for shape in ((2, 3, 4, 5, 7), (1, 2, 3, 3, 30), (2, 1, 1, 2, 9)):
        x = torch.randn(shape)
        compiled = daceml.compile(Apply(statistics), backward=False)
        for ours, expected in zip(compiled(x), statistics(x.double()), strict=True):
            torch.testing.assert_close(ours.double(), expected, rtol=1e-6, atol=1e-6)
        arrays = optimised(statistics, shape).sdfg.arrays
        assert sum(name.endswith("_lanes") for name in arrays) == 2
