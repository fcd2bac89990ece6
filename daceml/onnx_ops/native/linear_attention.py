"""Linear attention: a recurrence over the steps whose state is a matrix for each head.

A column of the matrix needs no other one, so lanes are batch, head and column. The state of a lane keeps
every step: `dk` elements of the column, and what the step writes.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from daceml.onnx_ops.registry import implements
from daceml.onnx_ops.tracing.indexing import divide, floor_div, same
from daceml.onnx_ops.tracing.tensor import Output, Tensor, compute, full, sum_over
from daceml.onnx_ops.tracing.trace import Refused
from daceml.sdfg.builder import parameters, reduced_parameters
from daceml.sdfg.recurrence import Recurrence
from daceml.sdfg.scalar import Index, Scalar, compute_type, reduce_over
from daceml.sdfg.scatter import Loop
from daceml.sdfg.sizes import product

# Elements of the state of all steps: 256 MiB of float32
_LARGEST = 1 << 26
_RULES = {
    "linear": (False, False),
    "gated": (True, False),
    "delta": (False, True),
    "gated_delta": (True, True),
}


@implements("LinearAttention")
def linear_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    past_state: Tensor | None,
    decay: Tensor | None,
    beta: Tensor | None,
    output: Output,
    present_state: Output | None,
    *,
    q_num_heads: int,
    kv_num_heads: int,
    scale: float = 0.0,
    update_rule: str = "gated_delta",
    chunk_size: int | None = None,
) -> None:
    """S = exp(g) S' + k w with w = v or beta (v - k exp(g) S'), S' of the step before; o = scale q S."""
    if update_rule not in _RULES:
        raise Refused(f"there is no update rule {update_rule!r}")
    gating, correcting = _RULES[update_rule]
    if (decay is None) == gating or (beta is None) == correcting:
        raise Refused(f"update rule {update_rule!r} with decay or beta that do not belong to it")
    batch, steps = query.shape[:2]
    width, depth = divide(query.shape[2], q_num_heads), divide(value.shape[2], kv_num_heads)
    if not isinstance(width, int) or not isinstance(depth, int) or q_num_heads % kv_num_heads:
        raise Refused(
            f"{query.shape[2]} and {value.shape[2]} features in {q_num_heads} and {kv_num_heads} heads"
        )
    shape = (batch, kv_num_heads, depth, steps + 1, width + 1)
    if isinstance(count := product(shape), int) and count > _LARGEST:
        raise Refused(f"the states of all steps are {count} elements")
    if same(steps, 0):
        raise Refused("a sequence without steps")
    trace, dtype = output.trace, compute_type(query.dtype)
    array = trace.intermediate("state", shape, dtype).name
    state = Output(shape, dtype, array, trace)
    n, head, column = parameters(3)
    step, row, k = reduced_parameters(3)
    lane = (n, head, column)

    def faded(at: Index) -> Scalar:
        """An element of the column before this step writes it."""
        held = state[(*lane, step, at)]
        if decay is None:
            return held
        single = same(decay.shape[2], kv_num_heads)
        return held * np.exp(decay[(n, step, head if single else head * width + at)])

    def total(term: Callable[[Index], Scalar]) -> Scalar:
        return term(0) if width == 1 else reduce_over("sum", [k], [width], term(k)).astype(dtype)

    written = value[(n, step, head * depth + column)]
    if beta is not None:
        weight = beta[(n, step, 0 if same(beta.shape[2], 1) else head)]
        written = weight * (written - total(lambda at: faded(at) * key[(n, step, head * width + at)]))
    update = faded(row) + key[(n, step, head * width + row)] * state[(*lane, step + 1, width)]
    start = full((batch, kv_num_heads, width, depth), 0, dtype) if past_state is None else past_state
    trace.computations.append(
        Recurrence(
            label=trace.label,
            target=array,
            params=lane,
            extents=(batch, kv_num_heads, depth),
            start=Loop(
                params=(step,), extents=(width,), index=(*lane, 0, step), value=start[(n, head, step, column)]
            ),
            step=step,
            steps=steps,
            loops=(
                Loop(params=(row,), extents=(1,), index=(*lane, step + 1, width), value=written),
                Loop(params=(row,), extents=(width,), index=(*lane, step + 1, row), value=update),
            ),
        )
    )
    factor = scale or width**-0.5
    group = q_num_heads // kv_num_heads

    def read(b: Index, t: Index, h: Index, m: Index) -> Scalar:
        def term(at: Index) -> Scalar:
            return query[(b, t, h * width + at)] * state[(b, floor_div(h, group), m, t + 1, at)]

        return sum_over((width,), term) * factor

    output.split(2, (q_num_heads, depth))[:] = compute((batch, steps, q_num_heads, depth), read)
    if present_state is not None:
        present_state[:] = state[:, :, :, steps, :width].transpose(0, 1, 3, 2)
