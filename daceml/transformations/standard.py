"""The standard recipes: what `auto_optimize` applies, in this order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from daceml.transformations.coarse.attention_lifting import lift_attention
from daceml.transformations.coarse.batch_norm_folding import fold_batch_norms
from daceml.transformations.coarse.bias_separation import separate_biases
from daceml.transformations.coarse.common_subexpressions import merge_common_subexpressions
from daceml.transformations.coarse.constant_folding import fold_constants
from daceml.transformations.coarse.contraction_fusion import fuse_contractions
from daceml.transformations.coarse.convolution_columns import use_columns
from daceml.transformations.coarse.convolution_padding import place_padding
from daceml.transformations.coarse.dropout_splitting import split_dropout
from daceml.transformations.coarse.frozen_folding import fold_frozen_weights
from daceml.transformations.coarse.gelu_lifting import lift_gelu
from daceml.transformations.coarse.image_views import keep_images
from daceml.transformations.coarse.layer_normalization_lifting import lift_layer_normalization
from daceml.transformations.coarse.matmul_scaling import scale_products
from daceml.transformations.coarse.mish_lifting import lift_mish
from daceml.transformations.coarse.product_epilogues import fuse_product_epilogues
from daceml.transformations.coarse.product_joining import join_products
from daceml.transformations.coarse.rms_normalization_lifting import lift_rms_normalization
from daceml.transformations.coarse.row_positions import use_row_positions
from daceml.transformations.coarse.spatial_flattening import flatten_spatial_dimensions
from daceml.transformations.coarse.swish_lifting import lift_swish
from daceml.transformations.coarse.transposed_weights import transpose_weights
from daceml.transformations.coarse.trivial_operators import remove_trivial_operators
from daceml.transformations.coarse.unread_operators import remove_unread_operators
from daceml.transformations.hardware.cpu_schedule import schedule_maps
from daceml.transformations.hardware.device_schedule import schedule_on_device
from daceml.transformations.hardware.merged_rows import merge_short_rows
from daceml.transformations.hardware.split_chains import split_chains
from daceml.transformations.hardware.streamed_stores import stream_stores
from daceml.transformations.hardware.tiled_reads import tile_reads
from daceml.transformations.layout.channels_last import use_channels_last
from daceml.transformations.layout.column_sums import sum_columns
from daceml.transformations.layout.convolution_activations import fuse_activations
from daceml.transformations.layout.in_place import write_in_place
from daceml.transformations.layout.packed_weights import pack_weights
from daceml.transformations.layout.short_reductions import write_out_reductions
from daceml.transformations.layout.watched_weights import watch_weights
from daceml.transformations.local.copy_elimination import eliminate_copies
from daceml.transformations.local.map_fusion import fuse_maps
from daceml.transformations.local.narrow_sums import narrow_sums
from daceml.transformations.local.one_sweep import sweep_rows_once
from daceml.transformations.local.subgraph_fusion import fuse_subgraphs
from daceml.transformations.recipe import LOOPS, Recipe, Step


def standard_recipe() -> Recipe:
    """What `auto_optimize` applies, to forward and backward pass alike.

    torch's kernels for channels last round up to 6 times as much (sums of 4,608 products). What that takes to
    the other side of a relu or a maximum is a whole element of a gradient, so they are for inference.
    Operators that are spelled out are one loop in inference anyway; in training, lifted ones keep less. A
    spelled-out attention is no loop: it is lifted where its matrix of scores leaves the caches, in training,
    where torch's kernel computes it again, for twice as many keys.
    """
    return Recipe(
        place_padding,
        remove_trivial_operators,
        fold_constants,
        merge_common_subexpressions,
        use_row_positions,
        Step(keep_images, only=("inference", "frozen")),
        Step(lift_attention, only=("inference", "frozen")),
        Step(lift_attention, {"training": True, "fewest_keys": 384}, only=("training",)),
        split_dropout,
        Step(lift_layer_normalization, only=("training",)),
        Step(lift_rms_normalization, only=("training",)),
        Step(lift_gelu, only=("training",)),
        Step(lift_mish, only=("training",)),
        Step(lift_swish, only=("training",)),
        Step(flatten_spatial_dimensions, only=("training",)),
        fuse_contractions,
        scale_products,
        Step(fold_frozen_weights, {"watched": True}, only=("inference",)),
        Step(fold_frozen_weights, only=("frozen",)),
        Step(join_products, only=("frozen",)),
        Step(transpose_weights, only=("frozen",)),
        Step(separate_biases, only=("inference", "frozen")),
        Step(separate_biases, {"training": True}, only=("training",)),
        Step(fold_batch_norms, only=("inference", "frozen")),
        remove_unread_operators,
        Step(use_columns, only=("inference", "frozen")),
        Step(use_columns, {"plain": True}, only=("training",)),
        eliminate_copies,
        fuse_maps,
        Step(use_channels_last, {"frozen": True}, at="local", only=("inference", "frozen")),
        sweep_rows_once,
        fuse_subgraphs,
        Step(pack_weights, {"watched": True}, only=("inference",)),
        Step(pack_weights, only=("frozen",)),
        Step(fuse_activations, only=("inference", "frozen")),
        Step(watch_weights, only=("inference",)),
        sum_columns,
        write_out_reductions,
        Step(write_in_place, only=("inference", "frozen")),
        tile_reads,
        stream_stores,
        merge_short_rows,
        split_chains,
        schedule_maps,
    )


_PROCESSOR_ONLY = (
    # layouts and loops that oneDNN and caches like
    "keep_images",
    "use_columns",
    "use_channels_last",
    "pack_weights",
    "fuse_activations",
    "watch_weights",
    "transpose_weights",
    "sum_columns",
    "sweep_rows_once",
    "write_out_reductions",
    "tile_reads",
    "stream_stores",
    "merge_short_rows",
    "split_chains",
    "schedule_maps",
    # in an order of reads and writes that threads do not keep
    "write_in_place",
)


_ON_DEVICE = {
    "fuse_subgraphs": Step(fuse_subgraphs, {"threads": True}),
    # nobody looks there whether weights have changed since they were folded
    "fold_batch_norms": Step(fold_batch_norms, only=("frozen",)),
}


def device_recipe() -> Recipe:
    """The standard recipe for a CUDA device: every loop is a kernel there.

    Kernels of arrays in the processor's memory run in emulation, which is for tests.
    """
    steps = [step for step in standard_recipe() if step.name not in _PROCESSOR_ONLY]
    steps = [_ON_DEVICE.get(step.name, step) for step in steps]
    # before biases go from products to loops
    place = next(i for i, step in enumerate(steps) if step.name == "separate_biases")
    steps.insert(place, Step(fuse_product_epilogues, only=("inference", "frozen")))
    return Recipe(*steps, schedule_on_device).before("eliminate_copies", narrow_sums)


def operator_recipe(*, training: bool = False) -> Recipe:
    """The standard passes over ONNX nodes.

    Args:
        training: gradients follow.
    """
    return standard_recipe().when("training" if training else "inference").at("coarse", "operators")


def loop_recipe(*, training: bool = False, frozen: bool = False) -> Recipe:
    """The standard passes over lowered networks.

    Args:
        training: the network is half of a training step.
        frozen: weights do not change any more.
    """
    situation = "training" if training else "frozen" if frozen else "inference"
    return standard_recipe().when(situation).at(*LOOPS)


def absorbed_arrays(found: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """Array that a loop writes -> the arrays that disappeared into that loop.

    Args:
        found: what the passes of a loop recipe returned, by name.
    """
    maps: dict[str, tuple[str, ...]] = getattr(found.get("fuse_maps"), "absorbed", {})
    nests: dict[str, tuple[str, ...]] = getattr(found.get("fuse_subgraphs"), "absorbed", {})
    every = dict(maps)
    for array, arrays in nests.items():
        every[array] = (*maps.get(array, ()), *(b for a in arrays for b in (a, *maps.get(a, ()))))
    return every


def unoptimised_recipe(*, on_device: bool = False) -> Recipe:
    """What every lowered network needs: every operator stays a loop, or a kernel, of its own."""
    return Recipe(narrow_sums, schedule_on_device) if on_device else Recipe(schedule_maps)
