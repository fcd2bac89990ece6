"""Functions that read or write at positions that depend on data."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch.nn import functional

from benchmarks.gradient_checks.draws import Draw, real, uses
from benchmarks.operators.draws import Array, Chance


def _positions(c: Chance, shape: Any, extent: int, *, negative: bool = False) -> Array:
    return c.indices(shape, extent, negative=negative).astype(np.int64)


@uses("index by a tensor", "index by two tensors", "index by a tensor and slices")
def indexed(c: Chance, name: str) -> Draw:
    shape = c.shape(3, 3, empty=False)
    many = c.shape(0, 2)
    first, second = (_positions(c, many, n, negative=True) for n in (shape[0], shape[1]))
    last = _positions(c, many, shape[2], negative=True)
    match name:
        case "index by a tensor":
            return Draw(call=lambda x, i: x[i], tensors=[real(c, shape), first])
        case "index by two tensors":
            return Draw(call=lambda x, i, j: x[i, j], tensors=[real(c, shape), first, second])
        case _:
            return Draw(call=lambda x, i, j: x[i, :, j], tensors=[real(c, shape), first, last])


@uses("gather", "take_along_dim", "scatter", "scatter_add", "scatter a number")
def along(c: Chance, name: str) -> Draw:
    shape = c.shape(1, 3, empty=False)
    axis = c.axis(len(shape))
    count = list(shape)
    count[axis] = c.between(0, shape[axis] if name == "scatter" else 5)
    at = _positions(c, count, shape[axis])
    if (
        name.startswith("scatter") and name != "scatter_add"
    ):  # two writes to one element have no order in torch
        at = np.argsort(real(c, shape), axis=axis)
        at = np.take(at, range(min(count[axis], shape[axis])), axis=axis)
    tensors = [real(c, shape), at]
    match name:
        case "scatter" | "scatter_add":
            function = getattr(torch, name)
            call = lambda x, i, s, dim: function(x, dim, i, s)  # noqa: E731
            return Draw(call=call, tensors=[*tensors, real(c, at.shape)], attributes={"dim": axis})
        case "scatter a number":
            call = lambda x, i, dim: torch.scatter(x, dim, i, 2.5)  # noqa: E731
        case "gather":
            call = lambda x, i, dim: torch.gather(x, dim, i)  # noqa: E731
        case _:
            call = lambda x, i, dim: torch.take_along_dim(x, i, dim)  # noqa: E731
    return Draw(call=call, tensors=tensors, attributes={"dim": axis})


@uses("scatter_reduce")
def scatter_reduce(c: Chance, name: str) -> Draw:
    shape = c.shape(1, 3, empty=False)
    axis = c.axis(len(shape))
    at = _positions(c, shape, shape[axis])
    call = lambda x, i, s, dim, reduce, include_self: torch.scatter_reduce(  # noqa: E731
        x, dim, i, s, reduce, include_self=include_self
    )
    attributes = {"dim": axis, "reduce": c.of(("sum", "mean", "amax", "amin")), "include_self": c.one_in(2)}
    return Draw(call=call, tensors=[real(c, shape), at, real(c, shape)], attributes=attributes)


@uses("index_select", "index_add", "index_copy", "index_fill")
def by_index(c: Chance, name: str) -> Draw:
    shape = c.shape(1, 3, empty=False)
    axis = c.axis(len(shape))
    count = (
        c.between(0, 2 * shape[axis]) if name in ("index_select", "index_add") else c.between(0, shape[axis])
    )
    at = _positions(c, (count,), shape[axis])
    if name in ("index_copy", "index_fill"):
        at = np.asarray(c.permutation(shape[axis])[:count], np.int64)
    source = list(shape)
    source[axis] = count
    function = getattr(torch, name)
    if name == "index_select":
        call = lambda x, i, dim: function(x, dim, i)  # noqa: E731
        return Draw(call=call, tensors=[real(c, shape), at], attributes={"dim": axis})
    if name == "index_fill":
        call = lambda x, i, dim: function(x, dim, i, -1.0)  # noqa: E731
        return Draw(call=call, tensors=[real(c, shape), at], attributes={"dim": axis})
    call = lambda x, i, s, dim: function(x, dim, i, s)  # noqa: E731
    return Draw(call=call, tensors=[real(c, shape), at, real(c, source)], attributes={"dim": axis})


@uses("index_put")
def index_put(c: Chance, name: str) -> Draw:
    shape = c.shape(2, 3, empty=False)
    accumulate, count = c.one_in(2), c.between(0, shape[0])
    at = (
        _positions(c, (count,), shape[0])
        if accumulate
        else np.asarray(c.permutation(shape[0])[:count], np.int64)
    )
    call = lambda x, i, v, accumulate: torch.index_put(x, (i,), v, accumulate)  # noqa: E731
    tensors = [real(c, shape), at, real(c, (count, *shape[1:]))]
    return Draw(call=call, tensors=tensors, attributes={"accumulate": accumulate})


@uses("assignment to a slice", "assignment to a masked part")
def assigned(c: Chance, name: str) -> Draw:
    shape = c.shape(2, 3, empty=False)
    if name == "assignment to a slice":

        def into(x: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            y = x * 2
            y[..., ::2] = v
            return y * x

        return Draw(call=into, tensors=[real(c, shape), real(c, (*shape[:-1], (shape[-1] + 1) // 2))])

    def masked(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        y = x.sin()
        y[mask] = 0.5
        return y * x

    return Draw(call=masked, tensors=[real(c, shape), c.values(shape, "bool")])


@uses("embedding")
def embedding(c: Chance, name: str) -> Draw:
    rows = c.between(1, 6)
    padding = c.of((None, 0, -1))
    call = lambda i, w, padding_idx: functional.embedding(i, w, padding_idx=padding_idx)  # noqa: E731
    tensors = [_positions(c, c.shape(0, 3), rows), real(c, (rows, c.size(empty=False)))]
    return Draw(call=call, tensors=tensors, attributes={"padding_idx": padding}, smooth=padding is None)


@uses("embedding_bag")
def embedding_bag(c: Chance, name: str) -> Draw:
    rows, columns, mode = c.between(1, 6), c.size(empty=False), c.of(("sum", "mean", "max"))
    weight = real(c, (rows, columns))
    if c.one_in(2):
        at = _positions(c, (c.between(1, 4), c.between(1, 4)), rows)
        return Draw(call=functional.embedding_bag, tensors=[at, weight], attributes={"mode": mode})
    at = _positions(c, (c.between(1, 7),), rows)
    offsets = np.sort(c.indices((c.between(1, 4),), at.size, negative=False)).astype(np.int64)
    offsets[0] = 0
    call = lambda i, w, o, *s, mode: functional.embedding_bag(  # noqa: E731
        i, w, o, mode=mode, per_sample_weights=s[0] if s else None
    )
    extra = [real(c, at.shape)] if mode == "sum" and c.one_in(2) else []
    return Draw(call=call, tensors=[at, weight, offsets, *extra], attributes={"mode": mode})


@uses("take", "masked_scatter")
def take(c: Chance, name: str) -> Draw:
    shape = c.shape(1, 3, empty=False)
    x = real(c, shape)
    if name == "take":
        return Draw(call=torch.take, tensors=[x, _positions(c, c.shape(0, 2), x.size)])
    return Draw(call=torch.masked_scatter, tensors=[x, c.values(shape, "bool"), real(c, shape)])
