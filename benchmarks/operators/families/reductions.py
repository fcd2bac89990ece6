"""Reductions, scans, and normalisations, which are built of them."""

from __future__ import annotations

import math

import numpy as np

from benchmarks.operators.draws import FLOATS, Chance, Draw, draws

# Attributes are float32: these are the same in every type
EPSILONS = (2.0**-16, 2.0**-7)


@draws(
    "ReduceSum",
    "ReduceMean",
    "ReduceMax",
    "ReduceMin",
    "ReduceProd",
    "ReduceL1",
    "ReduceL2",
    "ReduceSumSquare",
)
def reduction(c: Chance, op: str) -> Draw:
    shape, dtype = c.shape(), c.of(("float32", "float32", "float64", "float16"))
    empty = op in ("ReduceSum", "ReduceProd", "ReduceL1", "ReduceL2", "ReduceSumSquare")
    shape = shape if empty else tuple(max(n, 1) for n in shape)
    axes = None if c.one_in(4) else np.asarray(c.axes(len(shape), none=True), np.int64)
    attributes = {"keepdims": c.between(0, 1), "noop_with_empty_axes": c.between(0, 1)}
    x = c.values(shape, dtype)
    return Draw(
        op_type=op,
        inputs=[x, axes],
        attributes=attributes,
        constants=c.constant(1),
        terms=max(math.prod(shape), 1),
    )


@draws("ReduceLogSum", "ReduceLogSumExp")
def logarithmic_reduction(c: Chance, op: str) -> Draw:
    shape, dtype = c.shape(empty=False), c.of(("float32", "float64"))
    axes = np.asarray(c.axes(len(shape)), np.int64)
    x = c.positive(shape, dtype) if op == "ReduceLogSum" else c.values(shape, dtype) * 20
    attributes = {"keepdims": c.between(0, 1)}
    return Draw(
        op_type=op, inputs=[x.astype(dtype), axes], attributes=attributes, constants=c.constant(1), terms=50
    )


@draws("ArgMax", "ArgMin")
def argument(c: Chance, op: str) -> Draw:
    shape = c.shape(1, 4, empty=False)
    x = np.round(c.values(shape, c.of(("float32", "float64", "int32"))))
    attributes = {
        "axis": c.axis(len(shape)),
        "keepdims": c.between(0, 1),
        "select_last_index": c.between(0, 1),
    }
    return Draw(op_type=op, inputs=[x], attributes=attributes, exact=True)


@draws("CumSum")
def cumulative_sum(c: Chance, op: str) -> Draw:
    shape, dtype = c.shape(1, 4), c.of(("float32", "float64", "int32", "int64"))
    axis = np.asarray(c.axis(len(shape)), c.of(("int32", "int64")))
    attributes = {"exclusive": c.between(0, 1), "reverse": c.between(0, 1)}
    x = c.values(shape, dtype)
    return Draw(op_type=op, inputs=[x, axis], attributes=attributes, constants=c.constant(1), terms=11)


@draws("Softmax", "LogSoftmax", "Hardmax")
def softmax(c: Chance, op: str) -> Draw:
    shape = c.shape(1, 4)
    x = c.values(shape, c.of(("float32", "float64") if op == "Hardmax" else FLOATS)) * 5
    return Draw(op_type=op, inputs=[x], attributes={"axis": c.axis(len(shape))}, terms=8)


@draws("BatchNormalization")
def batch_normalization(c: Chance, op: str) -> Draw:
    shape, dtype = c.shape(2, 4), c.of(("float32", "float64"))
    n = shape[1]
    inputs = [c.values(shape, dtype), *(c.values((n,), dtype) for _ in range(3)), c.positive((n,), dtype)]
    return Draw(op_type=op, inputs=inputs, attributes={"epsilon": c.of(EPSILONS)}, terms=32)


@draws("LayerNormalization")
def layer_normalization(c: Chance, op: str) -> Draw:
    shape, dtype = c.shape(1, 4, empty=False), c.of(("float32", "float64"))
    axis = c.axis(len(shape))
    inner = shape[axis:]
    bias = None if c.one_in(2) else c.values(inner, dtype)
    inputs = [c.values(shape, dtype), c.values(inner, dtype), bias]
    attributes = {"axis": axis, "epsilon": c.of(EPSILONS)}
    return Draw(op_type=op, inputs=inputs, attributes=attributes, terms=math.prod(inner))


@draws("InstanceNormalization")
def instance_normalization(c: Chance, op: str) -> Draw:
    shape, dtype = c.shape(3, 4, empty=False), c.of(("float32", "float64"))
    inputs = [c.values(shape, dtype), c.values((shape[1],), dtype), c.values((shape[1],), dtype)]
    return Draw(op_type=op, inputs=inputs, attributes={"epsilon": c.of(EPSILONS)}, terms=64)


@draws("LpNormalization")
def lp_normalization(c: Chance, op: str) -> Draw:
    shape = c.shape(1, 4, empty=False)
    attributes = {"axis": c.axis(len(shape)), "p": c.of((1, 2))}
    return Draw(
        op_type=op, inputs=[c.positive(shape, c.of(("float32", "float64")))], attributes=attributes, terms=11
    )


@draws("LRN")
def local_response(c: Chance, op: str) -> Draw:
    attributes = {"size": c.of((1, 3, 5)), "alpha": 0.125, "beta": 0.75, "bias": 1.0}
    return Draw(
        op_type=op, inputs=[c.values(c.shape(4, 4, empty=False), "float32")], attributes=attributes, terms=5
    )


@draws("TopK")
def top_k(c: Chance, op: str) -> Draw:
    shape = c.shape(1, 3, empty=False)
    axis = c.axis(len(shape))
    k = np.asarray([c.between(1, shape[axis])], np.int64)
    attributes = {"axis": axis, "largest": c.between(0, 1), "sorted": 1}
    inputs = [c.values(shape, c.of(("float32", "float64"))), k]
    return Draw(
        op_type=op, inputs=inputs, attributes=attributes, constants=c.constant(1), outputs=2, exact=True
    )
