"""What each pass brings: recipes that end earlier, and rows for the passes that change something."""

from __future__ import annotations

from functools import partial
from itertools import pairwise

import pytest
import torch

from benchmarks import waterfall
from benchmarks.models.named import spec_named
from benchmarks.peers import Mode, build_step
from benchmarks.waterfall import NOTHING, build_cut_step, lines, prefixes
from daceml.transformations.standard import standard_recipe, unoptimised_recipe


@pytest.mark.parametrize("mode", ["inference", "training"])
def test_recipes_grow_pass_by_pass_and_end_with_what_every_network_needs(mode: Mode):
    recipes = list(prefixes(mode).values())
    needed = unoptimised_recipe()
    assert recipes[0] == needed
    for shorter, longer in pairwise(recipes):
        assert longer[: len(shorter) - len(needed)] == shorter[: -len(needed)]
        assert len(longer) == len(shorter) + 1
        assert longer[-len(needed) :] == needed
    assert {step.name for step in recipes[-1]} == {step.name for step in standard_recipe().when(mode)}


@pytest.mark.slow
def test_fusion_is_seen_and_idle_passes_are_named():
    rows = waterfall.counts(partial(spec_named, "reduced:mish"), "training")
    after = [row["after"] for row in rows]
    assert after[0] == NOTHING
    assert {*after, *(name for row in rows for name in row["idle"])} == {*prefixes("training")}
    assert rows[-1]["kernels"] < rows[0]["kernels"]
    assert rows[-1]["bytes_moved"] < rows[0]["bytes_moved"]


def test_a_cut_recipe_computes_the_same():
    find = partial(spec_named, "reduced:mish")
    torch.testing.assert_close(
        build_cut_step(find, "inference", NOTHING)(), build_step(find, "inference", "eager")()
    )


def test_a_table_has_a_line_for_each_pass_and_one_for_the_idle_ones():
    duration = {"median": 1500.0, "low": 1400.0, "high": 1600.0, "n": 6}
    gain = {"median": 2.0, "low": 1.9, "high": 2.1, "n": 6}
    row = {"kernels": 4, "bytes_moved": 2_500_000, "measured": True, "duration_us": duration, "idle": []}
    rows = [{**row, "after": NOTHING}, {**row, "after": "fuse_maps", "gain": gain, "idle": ["sum_columns"]}]
    first, second, idle = lines(rows)
    assert "no pass" in first
    assert all(fact in second for fact in ("fuse_maps", "4", "2.00"))
    assert "sum_columns" in idle
