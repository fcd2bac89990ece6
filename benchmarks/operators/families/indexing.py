"""Positions that are data, and slices."""

from __future__ import annotations

import math

import numpy as np

from benchmarks.operators.draws import Chance, Draw, draws


@draws("Gather")
def gather(c: Chance, op: str) -> Draw:
    shape = c.shape(1, 4, empty=False)
    axis = c.axis(len(shape))
    x = c.values(shape, c.of(("float32", "float64", "int64", "bool")))
    inputs = [x, c.indices(c.shape(0, 2), shape[axis])]
    return Draw(
        op_type=op,
        inputs=inputs,
        attributes={"axis": axis},
        constants=frozenset() if c.one_in(2) else frozenset({1}),
        exact=True,
    )


@draws("GatherElements", "ScatterElements")
def elements(c: Chance, op: str) -> Draw:
    shape = c.shape(1, 4, empty=False)
    axis, dtype = c.axis(len(shape)), c.of(("float32", "float64", "int64"))
    scatter = op == "ScatterElements"
    reduction = c.of(("none", "add", "mul", "max", "min")) if scatter else "none"
    sizes = [c.between(1, n) for n in shape]
    at = axis % len(shape)
    if not scatter or reduction != "none":
        sizes[at] = c.size()
        positions = c.indices(sizes, shape[at])
    else:
        # the order in which equal positions are written is nobody's promise
        ranks = np.argsort(c.values((*sizes[:at], shape[at], *sizes[at + 1 :]), "float32"), axis=at)
        positions = np.take(ranks, range(sizes[at]), axis=at).astype(np.int64)
    inputs = [c.values(shape, dtype), positions]
    attributes: dict[str, object] = {"axis": axis}
    if scatter:
        inputs.append(c.values(sizes, dtype))
        attributes["reduction"] = reduction
    return Draw(
        op_type=op, inputs=inputs, attributes=attributes, exact=reduction in ("none", "max", "min"), terms=8
    )


@draws("GatherND", "ScatterND")
def nd(c: Chance, op: str) -> Draw:
    shape = c.shape(1, 4, empty=False)
    depth = c.between(1, len(shape))
    dtype = c.of(("float32", "float64", "int64"))
    scatter = op == "ScatterND"
    reduction = c.of(("none", "add", "mul", "max", "min")) if scatter else "none"
    outer = c.shape(1, 2, empty=False)
    positions = np.stack([c.indices(outer, n).astype(np.int64) for n in shape[:depth]], axis=-1)
    if scatter and reduction == "none":
        extents = shape[:depth]
        count = min(math.prod(extents), 4)
        chosen = c.permutation(math.prod(extents))[:count]
        positions = np.stack(np.unravel_index(chosen, extents), axis=-1).astype(np.int64)
        outer = (count,)
    inputs = [c.values(shape, dtype), positions]
    if scatter:
        inputs.append(c.values((*outer, *shape[depth:]), dtype))
    attributes = {"reduction": reduction} if scatter else {}
    return Draw(
        op_type=op, inputs=inputs, attributes=attributes, exact=reduction in ("none", "max", "min"), terms=8
    )


@draws("Slice")
def slices(c: Chance, op: str) -> Draw:
    shape = c.shape(1, 4)
    axes = c.axes(len(shape))
    starts = [c.between(-shape[a] - 2, shape[a] + 2) for a in axes]
    ends = [c.of((c.between(-shape[a] - 2, shape[a] + 2), 2**31 - 1)) for a in axes]
    steps = [c.of((1, 1, 2, 3, -1, -2)) for _ in axes]
    kind = c.of((np.int64, np.int32))
    lists = [np.asarray(values, kind) for values in (starts, ends, axes, steps)]
    x = c.values(shape, c.of(("float32", "int64", "bool")))
    return Draw(op_type=op, inputs=[x, *lists], constants=c.constant(1, 2, 3, 4), exact=True)


@draws("Trilu")
def trilu(c: Chance, op: str) -> Draw:
    x = c.values(c.shape(2, 4), c.of(("float32", "int64")))
    k = None if c.one_in(2) else np.asarray(c.between(-3, 3), np.int64)
    return Draw(
        op_type=op, inputs=[x, k], attributes={"upper": c.between(0, 1)}, constants=c.constant(1), exact=True
    )


@draws("OneHot")
def one_hot(c: Chance, op: str) -> Draw:
    shape = c.shape(0, 3)
    depth = c.between(1, 5)
    indices = c.values(shape, "int64")  # also outside: rows without a one
    values = np.asarray([0, 3], c.of(("float32", "int64")))
    inputs = [indices, np.asarray(depth, np.int64), values]
    return Draw(
        op_type=op,
        inputs=inputs,
        attributes={"axis": c.axis(len(shape) + 1)},
        constants=c.constant(1, 2),
        exact=True,
    )
