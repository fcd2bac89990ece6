"""The two names of each pass of the standard recipe, and how one that a user types is found."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence

from daceml.errors import ExplorationError
from daceml.transformations.standard import standard_recipe

SHOWN: Mapping[str, str] = {
    "place_padding": "ConvolutionPadding",
    "remove_trivial_operators": "TrivialOperators",
    "fold_constants": "ConstantFolding",
    "merge_common_subexpressions": "CommonSubexpressions",
    "lift_attention": "AttentionLifting",
    "split_dropout": "DropoutSplitting",
    "lift_layer_normalization": "LayerNormalizationLifting",
    "lift_rms_normalization": "RMSNormalizationLifting",
    "lift_gelu": "GeluLifting",
    "lift_mish": "MishLifting",
    "lift_swish": "SwishLifting",
    "flatten_spatial_dimensions": "SpatialFlattening",
    "fuse_contractions": "ContractionFusion",
    "scale_products": "MatmulScaling",
    "fold_frozen_weights": "FrozenFolding",
    "join_products": "ProductJoining",
    "transpose_weights": "TransposedWeights",
    "separate_biases": "BiasSeparation",
    "use_row_positions": "RowPositions",
    "keep_images": "ImageViews",
    "fold_batch_norms": "BatchNormFolding",
    "remove_unread_operators": "UnreadOperators",
    "use_columns": "ConvolutionColumns",
    "eliminate_copies": "CopyElimination",
    "fuse_maps": "MapFusion",
    "use_channels_last": "ChannelsLast",
    "sweep_rows_once": "OneSweep",
    "fuse_subgraphs": "SubgraphFusion",
    "pack_weights": "PackedWeights",
    "fuse_activations": "ConvolutionActivations",
    "watch_weights": "WatchedWeights",
    "sum_columns": "ColumnSums",
    "write_out_reductions": "ShortReductions",
    "write_in_place": "InPlace",
    "tile_reads": "TiledReads",
    "stream_stores": "StreamedStores",
    "merge_short_rows": "MergedRows",
    "split_chains": "SplitChains",
    "schedule_maps": "ParallelLoops",
}
"""Name in a recipe -> name in its records, which `explain` shows."""

STAGES = frozenset({"Lowering", "MemoryPlan"})
"""What `explain` shows besides, and no recipe has: every program is lowered and laid out."""


def known_passes(training: bool) -> list[str]:
    """Names of the standard recipe's passes for a situation, in their order."""
    recipe = standard_recipe().when("training" if training else "inference")
    return list(dict.fromkeys(step.name for step in recipe))


def frozen_passes() -> list[str]:
    """Names of those passes that run only where weights do not change any more, in their order."""
    inference = known_passes(training=False)
    names = dict.fromkeys(step.name for step in standard_recipe().when("frozen"))
    return [name for name in names if name not in inference]


def askable_passes(training: bool) -> list[str]:
    """Those of a situation, and in inference those of frozen weights."""
    return known_passes(training) + ([] if training else frozen_passes())


def find_pass(text: str, names: Sequence[str]) -> str | None:
    """The pass of a name: fuse_subgraphs, or SubgraphFusion; None where there is none."""
    return next((name for name in names if text in (name, SHOWN[name])), None)


def pass_named(text: str, names: Sequence[str]) -> str:
    """As `find_pass`.

    Raises:
        ExplorationError: there is none; the nearest is suggested in the form that was typed.
    """
    found = find_pass(text, names)
    if found is not None:
        return found
    if text in STAGES:
        raise ExplorationError(
            f"{text} is no pass that could be left out", why="no program is without it", fix="name a pass"
        )
    offered = list(names) if text.islower() else [SHOWN[name] for name in names]
    closest = difflib.get_close_matches(text, offered, n=1)
    raise ExplorationError(
        f"the standard recipe has no pass {text!r}",
        why="it has " + ", ".join(offered),
        fix=f"did you mean {closest[0]!r}?" if closest else "name one of them",
    )
