"""Embedding tables."""

from __future__ import annotations

from typing import Any

from daceml.frontend.translations import UntranslatableError, translates
from daceml.frontend.translations.emit import Value, op


@translates("aten.embedding.default")
def embedding(
    weight: Value,
    indices: Value,
    padding_idx: int = -1,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Value:
    return op.Gather(weight, indices, axis=0)


@translates("aten.embedding_bag.padding_idx", "aten.embedding_bag.default")
def embedding_bag(
    weight: Value,
    indices: Value,
    offsets: Value,
    scale_grad_by_freq: bool = False,
    mode: int = 0,
    sparse: bool = False,
    per_sample_weights: Value | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> tuple[Value, Value, Value, Value]:
    """Outputs 1 to 3 are read by torch's backward only: they repeat the offsets."""
    from daceml.frontend.translations.embedding_functions import EmbeddingBagMean, EmbeddingBagSum

    functions: dict[int, Any] = {0: EmbeddingBagSum, 1: EmbeddingBagMean}
    if mode not in functions or per_sample_weights is not None or padding_idx not in (None, -1):
        raise UntranslatableError("an embedding bag with maxima, sample weights or a padding index")
    starts = op.Slice(offsets, [0], [-1], [0]) if include_last_offset else offsets
    return functions[mode](weight, indices, starts), *(op.Identity(offsets) for _ in range(3))
