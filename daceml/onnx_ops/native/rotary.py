"""Rotary position embedding: pairs of features turned by an angle that the position gives."""

from __future__ import annotations

from collections.abc import Callable

import dace

from daceml.onnx_ops.native.gather import check_positions
from daceml.onnx_ops.registry import implements
from daceml.onnx_ops.tracing.indexing import Position, divide
from daceml.onnx_ops.tracing.tensor import Output, Tensor, compute
from daceml.onnx_ops.tracing.trace import Refused
from daceml.sdfg.scalar import Index, Scalar


@implements("RotaryEmbedding")
def rotary_embedding(
    X: Tensor,
    cos_cache: Tensor,
    sin_cache: Tensor,
    position_ids: Tensor | None,
    Y: Output,
    *,
    interleaved: int = 0,
    num_heads: int = 0,
    rotary_embedding_dim: int = 0,
) -> None:
    target = Y
    if X.rank == 3:
        features = divide(X.shape[2], num_heads) if num_heads else None
        if features is None:
            raise Refused(f"{X.shape[2]} features are not {num_heads} heads")
        x = X.reshape((X.shape[0], X.shape[1], num_heads, features)).transpose(0, 2, 1, 3)
        target = Y.split(2, (num_heads, features)).permuted(0, 2, 1, 3)
    elif X.rank == 4:
        x = X
    else:
        raise Refused(f"a tensor of rank {X.rank}")
    width = rotary_embedding_dim or x.shape[3]
    if not isinstance(width, int) or width % 2:
        raise Refused(f"{width} features are no pairs")
    half = width // 2
    if position_ids is not None:
        check_positions(position_ids, cos_cache.shape[0], lowest=0)

    def angle(cache: Tensor, b: Index, s: Index, pair: Index) -> Scalar:
        row: list[Position] = [b, s]
        if position_ids is not None:
            row = [position_ids[(b, s)].astype(dace.int64)]
        return cache[(*row, pair)]

    def turned(second: bool) -> Callable[..., Scalar]:
        def element(b: Index, h: Index, s: Index, pair: Index) -> Scalar:
            places = (2 * pair, 2 * pair + 1) if interleaved else (pair, pair + half)
            real, imaginary = (x[(b, h, s, place)] for place in places)
            cosine, sine = angle(cos_cache, b, s, pair), angle(sin_cache, b, s, pair)
            return sine * real + cosine * imaginary if second else cosine * real - sine * imaginary

        return element

    shape = (*x.shape[:3], half)
    if interleaved:
        target[..., 0:width:2] = compute(shape, turned(False))
        target[..., 1:width:2] = compute(shape, turned(True))
    else:
        target[..., 0:half] = compute(shape, turned(False))
        target[..., half:width] = compute(shape, turned(True))
    target[..., width:] = x[..., width:]
