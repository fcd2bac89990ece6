"""A transformer by its sizes, and how its parameters are shared by the ranks of a tensor-parallel group."""

from __future__ import annotations

import math
from dataclasses import dataclass

from daceml.errors import EntryError, ParallelPlanError
from daceml.operations.database.records import Operand

_MULTIPLE = 128  # Megatron-LM's --make-vocab-size-divisible-by


@dataclass(frozen=True, kw_only=True)
class Transformer:
    """A stack of equal layers between an embedding and a head that shares its weights.

    Attributes:
        layers: of attention and a feed-forward network of four times the hidden size.
        hidden: size of a token's vector.
        heads: of attention.
        sequence: tokens of a sample.
        vocabulary: tokens that there are.
        dtype: of activations, and of the weights that products read.
    Raises:
        ParallelPlanError: heads that do not divide the hidden size, or a type of unknown size.
    """

    layers: int
    hidden: int
    heads: int
    sequence: int
    vocabulary: int
    dtype: str = "float16"

    def __post_init__(self) -> None:
        if min(self.layers, self.hidden, self.heads, self.sequence, self.vocabulary) < 1:
            raise ParallelPlanError(
                "a transformer has a size below one", fix="give layers, hidden size, heads, tokens and words"
            )
        try:
            Operand(shape=(), dtype=self.dtype).size_bytes  # noqa: B018 - it may be unknown
        except EntryError as error:
            raise ParallelPlanError(
                f"a transformer of {self.dtype!r}", why=error.what, fix="name the type as numpy does: float32"
            ) from error
        if self.hidden % self.heads:
            raise ParallelPlanError(
                f"a hidden size of {self.hidden} is not divided by {self.heads} heads",
                fix="choose heads that divide the hidden size",
            )

    @property
    def head_size(self) -> int:
        """Of a head's vectors."""
        return self.hidden // self.heads

    def heads_of(self, tensor: int) -> int:
        """On each of so many ranks.

        Raises:
            ParallelPlanError: they cannot have equally many.
        """
        if self.heads % tensor:
            raise ParallelPlanError(
                f"{self.heads} heads cannot be shared by {tensor} tensor-parallel ranks",
                fix="choose a degree of tensor parallelism that divides the heads",
            )
        return self.heads // tensor

    def words_of(self, tensor: int) -> int:
        """Rows of the embedding on each of so many ranks, made up to whole tiles of 128 on each."""
        multiple = _MULTIPLE * tensor
        return math.ceil(self.vocabulary / multiple) * multiple // tensor

    def layer_parameters(self, tensor: int) -> int:
        """Of one layer on each of so many ranks: matrices and their biases are shared, where that helps."""
        h = self.hidden
        shared = 12 * h * h + 7 * h  # of three projections, four and four times the hidden size, and biases
        whole = 6 * h  # two normalisations, two biases behind an all-reduce
        return shared // tensor + whole

    def embedding_parameters(self, tensor: int) -> int:
        """Of words, on each of so many ranks; the head has the same ones."""
        return self.words_of(tensor) * self.hidden

    def position_parameters(self) -> int:
        """Of positions, on every rank that embeds."""
        return self.sequence * self.hidden
