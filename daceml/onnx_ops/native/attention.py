"""Scaled dot-product attention with masks, grouped heads and a cache of keys and values."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import dace
import numpy as np

from daceml.onnx_ops.registry import implements
from daceml.onnx_ops.tracing.functions import where
from daceml.onnx_ops.tracing.indexing import broadcast_index, divide
from daceml.onnx_ops.tracing.tensor import Output, Tensor, compute, full, sum_over
from daceml.onnx_ops.tracing.trace import Refused
from daceml.sdfg.scalar import Index, Scalar, compute_type, index_value, literal

At = Callable[..., Scalar]
"""The element at (sample, key head, query in its group, row, column)."""


def with_heads(x: Tensor, heads: int | None) -> Tensor:
    """[B, S, H*D] or [B, H, S, D] as [B, H, S, D]."""
    if x.rank == 4:
        return x
    if heads is None:
        raise Refused("operands of rank 3 need q_num_heads and kv_num_heads")
    size = divide(x.shape[2], heads)
    if size is None:
        raise Refused(f"{x.shape[2]} features are not {heads} heads")
    return x.reshape((x.shape[0], x.shape[1], heads, size)).transpose(0, 2, 1, 3)


def _joined(past: Tensor | None, new: Tensor, present: Output | None) -> Tensor:
    """Cached and new keys (or values), in the output that holds them where there is one."""
    if past is None:
        if present is not None:
            present[:] = new
        return new
    length = past.shape[2] + new.shape[2]
    if present is None:
        trace = past.trace
        shape = (past.shape[0], past.shape[1], length, past.shape[3])
        array = trace.intermediate("joined", shape, past.dtype)
        present = Output(shape, past.dtype, array.name, trace)
    present[:, :, : past.shape[2]] = past
    present[:, :, past.shape[2] : length] = new
    return present


@dataclass(frozen=True, kw_only=True)
class Window:
    """Which keys a query sees, from where both are.

    Attributes:
        before: keys that come before the first query; `lengths` are added to it.
        lengths: keys of each sample that are no padding.
        left, right: how far a query sees; -1 for all.
        causal: whether it sees none behind itself.
    """

    before: Index
    lengths: Tensor | None
    left: int
    right: int
    causal: bool

    def conditions(self, b: Index, i: Index, j: Index) -> list[Scalar]:
        """All of them hold where key j is visible for query i of sample b."""
        place, key = index_value(i + self.before), index_value(j)
        found: list[Scalar] = []
        if self.lengths is not None:
            length = self.lengths[(b,)].astype(dace.int64)
            place = place + length
            found.append(key < length)
        if self.causal:
            found.append(key <= place)
        if self.left >= 0:
            found.append(place - key <= self.left)
        if self.right >= 0:
            found.append(key - place <= self.right)
        return found


def _as_wide(mask: Tensor, columns: Index) -> Tensor:
    """A mask that ends before the keys hides the rest of them; one of a single column is for all keys."""
    width = mask.shape[-1]
    if not isinstance(width, int) or not isinstance(columns, int) or width in (1, columns):
        return mask
    if width > columns:
        raise Refused(f"a mask of {width} columns for {columns} keys")
    shape = (*mask.shape[:-1], columns)
    wide = Output(shape, mask.dtype, mask.trace.intermediate("mask", shape, mask.dtype).name, mask.trace)
    wide[..., :width] = mask
    hidden = False if mask.dtype == dace.bool_ else -math.inf
    wide[..., width:] = full((*mask.shape[:-1], columns - width), hidden, mask.dtype)
    return wide


@implements("AttentionSaving", name="maps", domain="daceml")
@implements("Attention", name="maps")
def attention(
    Q: Tensor,
    K: Tensor,
    V: Tensor,
    attn_mask: Tensor | None,
    past_key: Tensor | None,
    past_value: Tensor | None,
    nonpad_kv_seqlen: Tensor | None,
    Y: Output,
    present_key: Output | None,
    present_value: Output | None,
    qk_matmul_output: Output | None,
    LogSumExp: Output | None,
    *,
    is_causal: int = 0,
    kv_num_heads: int | None = None,
    q_num_heads: int | None = None,
    qk_matmul_output_mode: int = 0,
    scale: float | None = None,
    softcap: float = 0.0,
    softmax_precision: int | None = None,
    left_window_size: int = -1,
    right_window_size: int = -1,
    as_spelled: int = 0,
    mask_hides: int = 0,
) -> None:
    """Attributes beyond ONNX's are those of `daceml.onnx_ops.domain.saving`."""
    q, k, v = with_heads(Q, q_num_heads), with_heads(K, kv_num_heads), with_heads(V, kv_num_heads)
    k, v = _joined(past_key, k, present_key), _joined(past_value, v, present_value)
    group = divide(q.shape[1], k.shape[1])
    if group is None:
        raise Refused(f"{q.shape[1]} query heads are no multiple of {k.shape[1]} key heads")
    batch, heads, rows, features = k.shape[0], k.shape[1], q.shape[2], q.shape[3]
    columns = k.shape[2]
    if scale is None and not isinstance(features, int):
        raise Refused("scale is missing and the head size is symbolic")
    factor = 1 / math.sqrt(float(features)) if scale is None else scale  # pyright: ignore[reportArgumentType]
    # Head h of the queries is (kv head, place in its group), so that no index is divided.
    grouped = q.reshape((batch, heads, group, rows, features))
    shape = (batch, heads, group, rows, columns)
    mask = None if attn_mask is None else _as_wide(attn_mask, columns)
    # What comes before the first query: the cache, or what is no padding of the keys
    before = 0 if past_key is None else past_key.shape[2]
    window = Window(
        before=before if nonpad_kv_seqlen is None else -rows,
        lengths=nonpad_kv_seqlen,
        left=left_window_size,
        right=right_window_size,
        causal=bool(is_causal),
    )

    def product(b: Index, h: Index, g: Index, i: Index, j: Index) -> Scalar:
        return sum_over((features,), lambda d: grouped[b, h, g, i, d] * k[b, h, j, d]) * factor

    def capped(value: Scalar) -> Scalar:
        return np.tanh(value / softcap) * softcap if softcap else value

    def given(step: int, element: At) -> At:
        """The element after a step of the scores; the output has those after the step that is asked for."""
        if qk_matmul_output is None or step != qk_matmul_output_mode:
            return element
        held = compute(shape, element).materialize()
        qk_matmul_output.split(1, (heads, group))[:] = held
        return lambda *index: held[index]

    if qk_matmul_output is not None and qk_matmul_output_mode not in range(4):
        raise Refused(f"there is no qk_matmul_output_mode {qk_matmul_output_mode}")
    products = given(0, product)
    caps = given(1, lambda *index: capped(products(*index)))

    def score(b: Index, h: Index, g: Index, i: Index, j: Index) -> Scalar:
        value = caps(b, h, g, i, j)
        if mask is not None:
            value = masked_score(
                value,
                mask,
                (b, h * group + g, i, j),
                (batch, q.shape[1], rows, columns),
                hides=bool(mask_hides),
            )
        hidden = literal(-math.inf, value.dtype)
        for visible in window.conditions(b, i, j):
            value = where(visible, value, hidden)
        return value

    scores = compute(shape, given(2, score)).materialize()
    largest = scores.max(-1, keepdims=True).materialize()
    # A row without visible keys has probabilities 0, as in ONNX and torch, not 0/0; spelled out it has 0/0
    shift = largest if as_spelled else where(largest == -math.inf, 0, largest)
    exponential = np.exp(scores - shift)
    total = exponential.sum(-1, keepdims=True).materialize()
    if LogSumExp is not None:
        # 0 for a row without visible keys, as in torch: exp(-inf - 0) is 0
        LogSumExp.split(1, (heads, group))[:] = (shift + np.log(where(total == 0, 1, total))).squeeze(-1)
    weights = (exponential / where(total == 0, 1, total)).materialize()
    given(3, lambda *index: weights[index])

    def element(b: Index, h: Index, g: Index, i: Index, d: Index) -> Scalar:
        return sum_over((columns,), lambda j: weights[b, h, g, i, j] * v[b, h, j, d])

    target = Y if Y.rank == 4 else Y.split(2, (q.shape[1], v.shape[3])).permuted(0, 2, 1, 3)
    target.split(1, (heads, group))[:] = compute((batch, heads, group, rows, v.shape[3]), element)


def masked_score(
    value: Scalar, mask: Tensor, index: tuple[Index, ...], shape: tuple[Index, ...], *, hides: bool = False
) -> Scalar:
    """A score under its mask; one that hides takes the place of the score where it is -inf."""
    columns = shape[-1]
    if isinstance(mask.shape[-1], int) and isinstance(columns, int) and 1 < mask.shape[-1] < columns:
        raise Refused(f"a mask of {mask.shape[-1]} columns for {columns} keys")
    element = mask[broadcast_index(index, mask.shape, shape)]
    if mask.dtype == dace.bool_:
        return where(element, value, literal(-math.inf, value.dtype))
    added = element.astype(compute_type(value.dtype))
    return where(added == -math.inf, added, value + added) if hides else value + added
