"""What a search may change of the standard recipe: one choice an entry, as data.

A choice says which passes are left out, which run with other options or in every situation, and which kind of
implementation operators prefer. Passes that bring a network into canonical form are no choices.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from daceml.onnx_ops.registry import Kind
    from daceml.transformations.recipe import Situation

NO_RECOMPUTATION = "store everything"
"""The choice that is about the backward pass and not about passes."""


@dataclass(frozen=True, kw_only=True)
class Choice:
    """One change of the standard recipe.

    Attributes:
        name: as `explain` shows it.
        why: when it may be faster.
        without: passes that are left out.
        options: pass -> options besides those that it has.
        everywhere: passes that run in every situation.
        prefer: operator -> kind of implementation that it gets where one applies.
        only: the situations in which it is a choice; all where empty.
    """

    name: str
    why: str
    without: tuple[str, ...] = ()
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])
    everywhere: tuple[str, ...] = ()
    prefer: Mapping[str, Kind] = field(default_factory=dict[str, "Kind"])
    only: tuple[Situation, ...] = ()


_INFERENCE: tuple[Situation, ...] = ("inference", "frozen")
_TRAINING: tuple[Situation, ...] = ("training",)
_LIFTED_NORMALIZATIONS = ("lift_layer_normalization", "lift_rms_normalization")
_LIFTED_ACTIVATIONS = ("lift_gelu", "lift_mish", "lift_swish")

CHOICES: tuple[Choice, ...] = (
    Choice(
        name="rows, not channels last",
        why="with few convolutions, bringing arrays into another order costs more than the kernels gain",
        without=("use_channels_last",),
        only=_INFERENCE,
    ),
    Choice(
        name="no columns",
        why="a convolution's own kernel reads its input once, columns write and read a copy of every window",
        without=("use_columns",),
        only=_INFERENCE,
    ),
    Choice(
        name="columns everywhere",
        why="a product of matrices may beat a convolution's kernel where channels are many and images small",
        options={"use_columns": {"always": True}},
        only=_INFERENCE,
    ),
    Choice(
        name="convolutions in loops",
        why="a depthwise or tiny convolution in a generated loop needs no call and joins what surrounds it",
        prefer={"Conv": "native"},
    ),
    Choice(
        name="products in loops",
        why="a product of small matrices in a generated loop needs no call and joins what surrounds it",
        prefer={"MatMul": "native", "Gemm": "native"},
    ),
    Choice(
        name="softmax gradients by torch",
        why="torch's kernel for long rows keeps one row in registers, a generated loop reads it twice",
        prefer={"SoftmaxGrad": "aten", "LogSoftmaxGrad": "aten"},
        only=_TRAINING,
    ),
    Choice(
        name="loops apart",
        why="loops that share little compete for registers and caches once they are one",
        without=("fuse_subgraphs",),
    ),
    Choice(
        name="small nests",
        why="loops of at most 8 computations keep all their values in registers",
        options={"fuse_subgraphs": {"most_members": 8}},
    ),
    Choice(
        name="long rows in chunks",
        why="statistics of a row that no near cache holds are one sweep in chunks, also where rows are many",
        options={"sweep_rows_once": {"long_bytes": 2**20}},
    ),
    Choice(
        name="short sums as loops",
        why="written-out reductions fill the cache of instructions where windows are many",
        without=("write_out_reductions",),
    ),
    Choice(
        name="sums of columns apart",
        why="sums next to the loop over rows go through memory in chunks, which few rows do not fill",
        without=("sum_columns",),
    ),
    Choice(
        name="results in arrays of their own",
        why="a loop that does not write over its operand needs no order between reads and writes",
        without=("write_in_place",),
        only=_INFERENCE,
    ),
    Choice(
        name="plain weights",
        why="a kernel for packed weights fixes blocks that a small product does not fill",
        without=("pack_weights",),
        only=("frozen",),
    ),
    Choice(
        name="stores through the caches",
        why="the next step finds a large result in a cache where the last one is large",
        without=("stream_stores",),
    ),
    Choice(
        name="threads from 65,536 iterations",
        why="opening a parallel region costs more than a short loop, on few or busy cores most of all",
        options={"schedule_maps": {"fewest_iterations": 65_536}},
    ),
    Choice(
        name="threads from 4,096 iterations",
        why="loops with dear functions are worth several threads earlier",
        options={"schedule_maps": {"fewest_iterations": 4_096}},
    ),
    Choice(
        name="lifted normalizations",
        why="one operator may have a kernel that its steps do not have",
        everywhere=_LIFTED_NORMALIZATIONS,
        only=_INFERENCE,
    ),
    Choice(
        name="normalizations in steps",
        why="the gradient of the steps reads what is stored and computes less again",
        without=_LIFTED_NORMALIZATIONS,
        only=_TRAINING,
    ),
    Choice(
        name="activations in steps",
        why="the gradient of the steps reads stored exponentials and does not compute them again",
        without=_LIFTED_ACTIVATIONS,
        only=_TRAINING,
    ),
    Choice(
        name="images as rows",
        why="long rows keep vectors busy where the rows of an image are short",
        everywhere=("flatten_spatial_dimensions",),
        only=_INFERENCE,
    ),
    Choice(
        name="images in two dimensions",
        why="loops over rows join convolutions' neighbours that a flat image stands apart from",
        without=("flatten_spatial_dimensions",),
        only=_TRAINING,
    ),
    Choice(
        name=NO_RECOMPUTATION,
        why="what is stored need not be computed again, for more memory",
        only=_TRAINING,
    ),
)
