"""The standard recipes: what `auto_optimize` applies, in this order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from daceml.transformations.coarse.convolution_columns import use_columns
from daceml.transformations.coarse.convolution_padding import place_padding
from daceml.transformations.coarse.split_dropout import SplitDropout
from daceml.transformations.hardware.cpu_schedule import schedule_maps
from daceml.transformations.layout.channels_last import use_channels_last
from daceml.transformations.layout.column_sums import sum_columns
from daceml.transformations.layout.packed_weights import pack_weights
from daceml.transformations.local.map_fusion import fuse_maps
from daceml.transformations.local.subgraph_fusion import fuse_subgraphs
from daceml.transformations.recipe import Recipe, Step


def operator_recipe(*, training: bool = False) -> Recipe:
    """Passes over ONNX nodes.

    Args:
        training: the network has been differentiated, and its padding been placed before that.
    """
    split = (SplitDropout(masked=True), SplitDropout(masked=False))
    return Recipe(*split) if training else Recipe(place_padding, use_columns, *split)


def loop_recipe(*, training: bool = False, frozen: bool = False) -> Recipe:
    """Passes over lowered networks.

    Args:
        training: torch's kernels for channels last round up to 6 times as much (sums of 4,608 products). What
            that takes to the other side of a relu or a maximum is a whole element of a gradient.
        frozen: weights do not change any more.
    """
    layouts = [] if training else [Step(use_channels_last, {"frozen": frozen})]
    packing = [pack_weights] if frozen else []
    return Recipe(fuse_maps, fuse_subgraphs, *layouts, *packing, sum_columns, schedule_maps)


def absorbed_arrays(found: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """Array that a loop writes -> the arrays that disappeared into that loop.

    Args:
        found: what the passes of a loop recipe returned, by name.
    """
    maps: dict[str, tuple[str, ...]] = found["fuse_maps"].absorbed if "fuse_maps" in found else {}
    nests: dict[str, tuple[str, ...]] = found["fuse_subgraphs"].absorbed if "fuse_subgraphs" in found else {}
    every = dict(maps)
    for array, arrays in nests.items():
        every[array] = (*maps.get(array, ()), *(b for a in arrays for b in (a, *maps.get(a, ()))))
    return every


def unoptimised_recipe() -> Recipe:
    """What every lowered network needs: every operator stays a loop of its own."""
    return Recipe(schedule_maps)
