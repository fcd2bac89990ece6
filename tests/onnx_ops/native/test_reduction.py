"""Reductions and positions of extremes."""

from __future__ import annotations

import numpy as np
import pytest

from tests.onnx_ops.native.single_node import Case, Outcome, random

X = random(3, 1, 5, 2)
POSITIVE = np.abs(X) + 0.1
WITH_NAN = np.where(random(4, 6, seed=3) > 1.2, np.float32(np.nan), random(4, 6)).astype(np.float32)
AXES = np.array([1, -1], np.int64)
OPS = ["Sum", "Max", "Min", "Mean", "Prod", "L1", "L2", "LogSum", "LogSumExp", "SumSquare"]
INTS = np.arange(-7, 17, dtype=np.int32).reshape(4, 6)
NOTHING = np.zeros((3, 0), np.float32)

CASES = {
    **{op: Case(op=f"Reduce{op}", inputs=[POSITIVE, AXES], constants=[1]) for op in OPS},
    **{
        f"{op} to rank 0": Case(op=f"Reduce{op}", inputs=[POSITIVE], attributes={"keepdims": 0}) for op in OPS
    },
    **{
        f"{op} drops": Case(
            op=f"Reduce{op}", inputs=[POSITIVE, np.array([0, 2])], constants=[1], attributes={"keepdims": 0}
        )
        for op in OPS
    },
    "axes attribute": Case(op="ReduceMean", inputs=[X], attributes={"axes": [0, -2]}, version=13),
    "no operation": Case(op="ReduceSum", inputs=[X], attributes={"noop_with_empty_axes": 1}),
    "no reduction of absolute values": Case(
        op="ReduceL1", inputs=[X], attributes={"noop_with_empty_axes": 1}
    ),
    "no reduction of squares": Case(op="ReduceSumSquare", inputs=[X], attributes={"noop_with_empty_axes": 1}),
    "symbolic": Case(op="ReduceMean", inputs=[random(7, 3), np.array([0])], constants=[1], symbolic={7: "N"}),
    "float64": Case(op="ReduceSum", inputs=[X.astype(np.float64)], attributes={"keepdims": 0}, rtol=1e-13),
    "float16": Case(
        op="ReduceMean",
        inputs=[random(300, 7).astype(np.float16), np.array([0])],
        constants=[1],
        rtol=2e-3,
        expected=[
            random(300, 7).astype(np.float16).astype(np.float32).mean(0, keepdims=True).astype(np.float16)
        ],
    ),
    "Sum of integers": Case(op="ReduceSum", inputs=[INTS, np.array([1])], constants=[1]),
    "Max of integers": Case(op="ReduceMax", inputs=[INTS, np.array([0])], constants=[1]),
    "Mean of integers": Case(
        op="ReduceMean",
        inputs=[INTS, np.array([1])],
        constants=[1],
        expected=[np.trunc(INTS.mean(1, keepdims=True)).astype(np.int32)],
    ),
    "Max of the smallest integer": Case(
        op="ReduceMax", inputs=[np.full((2, 3), -(2**63), np.int64), np.array([1])], constants=[1]
    ),
    "Max with NaN": Case(op="ReduceMax", inputs=[WITH_NAN, np.array([1])], constants=[1]),
    "Min with NaN": Case(op="ReduceMin", inputs=[WITH_NAN, np.array([1])], constants=[1]),
    "Max of booleans": Case(op="ReduceMax", inputs=[INTS > 3, np.array([1])], constants=[1]),
    "Min of booleans": Case(op="ReduceMin", inputs=[INTS > 3, np.array([0])], constants=[1]),
    "Sum of nothing": Case(
        op="ReduceSum",
        inputs=[NOTHING, np.array([1])],
        constants=[1],
        expected=[np.zeros((3, 1), np.float32)],
    ),
    "Mean of nothing": Case(
        op="ReduceMean",
        inputs=[NOTHING, np.array([1])],
        constants=[1],
        expected=[np.full((3, 1), np.nan, np.float32)],
    ),
    **{
        f"{op} of nothing, {dtype.__name__}": Case(
            op=f"Reduce{op}",
            inputs=[np.zeros((3, 0, 2), dtype), np.array([1])],
            constants=[1],
            attributes={"keepdims": keep},
            expected=[np.full((3, 1, 2) if keep else (3, 2), value, dtype)],
        )
        for op, dtype, value, keep in (
            ("Max", np.float32, -np.inf, 1),
            ("Min", np.float32, np.inf, 0),
            ("Max", np.int32, -(2**31), 0),
            ("Min", np.int64, 2**63 - 1, 1),
            ("LogSumExp", np.float32, -np.inf, 0),
        )
    },
    "Sum to nothing": Case(op="ReduceSum", inputs=[NOTHING, np.array([0])], constants=[1]),
    "cancellation": Case(
        op="ReduceSum",
        inputs=[np.array([1e8, 1, -1e8] * 100, np.float32)],
        attributes={"keepdims": 0},
        expected=[np.array(100, np.float32)],
    ),
    "LogSumExp of -inf": Case(
        op="ReduceLogSumExp",
        inputs=[np.array([[-np.inf, -np.inf], [1000.0, 999.0]], np.float32), np.array([1])],
        constants=[1],
        expected=[np.array([[-np.inf], [1000.3132617]], np.float32)],
    ),
    **{
        f"{op} {axis}": Case(op=op, inputs=[X], attributes={"axis": axis})
        for op in ("ArgMax", "ArgMin")
        for axis in (0, 2, -1)
    },
    "ArgMax drops": Case(op="ArgMax", inputs=[X], attributes={"axis": 2, "keepdims": 0}),
    "ArgMax ties": Case(op="ArgMax", inputs=[np.ones((3, 4), np.float32)], attributes={"axis": 1}),
    "ArgMax last of ties": Case(
        op="ArgMax", inputs=[np.ones((3, 4), np.float32)], attributes={"axis": 1, "select_last_index": 1}
    ),
    "ArgMax with NaN": Case(op="ArgMax", inputs=[WITH_NAN], attributes={"axis": 1}),
}


@pytest.mark.parametrize("title", CASES)
def test_values(outcome: Outcome) -> None:
    outcome.check()


@pytest.mark.parametrize("title", ["Sum", "Max with NaN", "Sum to rank 0"])
def test_accumulators_are_registers(outcome: Outcome) -> None:
    assert "reduce_atomic" not in outcome.code
    assert "new " not in outcome.code.split("__program_", 2)[1].split("DACE_EXPORTED")[0]
