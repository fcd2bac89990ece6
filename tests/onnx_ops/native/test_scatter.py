"""Writes at positions that depend on data: duplicates in order, negative positions, every reduction."""

from __future__ import annotations

import dace
import ml_dtypes
import numpy as np
import pytest
import torch
from dace.sdfg.nodes import MapEntry

from daceml.errors import ExecutionError, NoImplementationError
from daceml.sdfg.network_costs import maps_cost
from daceml.transformations.local.map_fusion import fuse_maps
from tests.onnx_ops.native.single_node import Case, Outcome, lowered, random
from tests.support.golden import golden, raises
from tests.support.operator_programs import lowered as lowered_text
from tests.support.operator_programs import program

X = random(5, 3, 4)
FUNCTIONS = {"none": None, "add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}


def elements(
    data: np.ndarray, indices: np.ndarray, updates: np.ndarray, axis: int, reduction: str = "none"
) -> Case:
    expected = data.copy()
    for place in np.ndindex(indices.shape):
        at = list(place)
        at[axis] = indices[place]
        function = FUNCTIONS[reduction]
        old, new = expected[tuple(at)], updates[place]
        expected[tuple(at)] = new if function is None else function(old, new)
    return Case(
        op="ScatterElements",
        inputs=[data, indices, updates],
        attributes={"axis": axis, "reduction": reduction},
        expected=[expected],
    )


def rows(data: np.ndarray, indices: np.ndarray, updates: np.ndarray, reduction: str = "none") -> Case:
    expected = data.copy()
    for place in np.ndindex(indices.shape[:-1]):
        at = tuple(indices[place])
        function = FUNCTIONS[reduction]
        old, new = expected[at], updates[place]
        expected[at] = new if function is None else function(old, new)
    return Case(
        op="ScatterND",
        inputs=[data, indices, updates],
        attributes={"reduction": reduction},
        expected=[expected],
    )


def symbolic(case: Case, sizes: dict[int, str]) -> Case:
    case.symbolic = sizes
    return case


MANY = np.random.default_rng(1).integers(-5, 5, (7, 3, 4))
CASES = {
    **{f"elements, duplicates, {r}": elements(X, MANY, random(7, 3, 4, seed=2), 0, r) for r in FUNCTIONS},
    **{
        f"rows, duplicates, {r}": rows(X, np.array([[4], [-5], [4], [0], [4]]), random(5, 3, 4, seed=3), r)
        for r in FUNCTIONS
    },
    "a part of each dimension": elements(X, np.array([[[1, -1, 0]], [[0, 0, 2]]]), random(2, 1, 3), 1),
    "last axis": elements(X, MANY[:5, :, :3] % 4, random(5, 3, 3), -1, "add"),
    "int32 positions": elements(X, MANY.astype(np.int32), random(7, 3, 4), 0),
    "one dimension": elements(random(6), np.array([5, 0, 5, -6]), random(4), 0, "add"),
    "whole elements": rows(X, np.array([[[0, 1, 2]], [[4, -1, 3]]]), random(2, 1)),
    "two of three": rows(X, np.array([[0, 1], [0, 1], [-1, -1]]), random(3, 4), "mul"),
    "wide rows": rows(random(9, 130), np.array([[8], [1], [8]]), random(3, 130), "add"),
    "sizes of one": elements(random(1, 1), np.array([[0], [-1], [0]]), random(3, 1), 0, "add"),
    "sizes of one in rows": rows(random(1, 5, 1, 3), np.array([[0, 4], [0, -5]]), random(2, 1, 3)),
    "no updates": rows(X, np.zeros((0, 1), np.int64), random(0, 3, 4)),
    "no elements": elements(random(0, 3), np.zeros((0, 3), np.int64), random(0, 3), 1),
    "float64": elements(X.astype(np.float64), MANY, random(7, 3, 4, dtype=np.float64), 0, "add"),
    "float16": rows(X.astype(np.float16), np.array([[2], [2]]), random(2, 3, 4).astype(np.float16), "max"),
    "bfloat16": rows(
        X.astype(ml_dtypes.bfloat16), np.array([[2]]), random(1, 3, 4).astype(ml_dtypes.bfloat16), "add"
    ),
    "integers": elements(np.arange(12).reshape(3, 4), MANY[:3, 0] % 3, MANY[:3, 1], 0, "mul"),
    "booleans": elements(np.eye(3) > 0, np.array([[2, 2, 2]]), np.array([[True, False, True]]), 0, "max"),
    "NaN stays": elements(
        np.array([np.nan, 1, 2], np.float32),
        np.array([0, 1, 1]),
        np.array([1, np.nan, 5], np.float32),
        0,
        "max",
    ),
    "symbolic": symbolic(
        rows(random(9, 6), np.array([[8], [-9], [8]] * 2 + [[0]]), random(7, 6), "add"), {9: "N", 7: "M"}
    ),
    "symbolic lanes": symbolic(
        elements(random(4, 9), MANY[:3, 0, :1] % 4 + np.zeros(9, np.int64), random(3, 9), 0, "add"), {9: "N"}
    ),
    "cache": Case(
        op="TensorScatter",
        inputs=[random(2, 5, 3), random(2, 2, 3, seed=1), np.array([3, 0])],
        version=24,
    ),
    "cache, circular": Case(
        op="TensorScatter",
        inputs=[random(2, 3, 5, 3), random(2, 3, 2, 3, seed=1), np.array([4, 1])],
        attributes={"mode": "circular"},
        version=24,
    ),
    "cache without positions": Case(
        op="TensorScatter",
        inputs=[random(2, 5, 3), random(2, 2, 3, seed=1)],
        attributes={"axis": 1},
        version=24,
    ),
    "before version 11": Case(
        op="Scatter",
        inputs=[X, MANY[:2], random(2, 3, 4)],
        expected=elements(X, MANY[:2], random(2, 3, 4), 0).expected,
        version=9,
    ),
}


@pytest.mark.parametrize("title", CASES)
def test_values(outcome: Outcome) -> None:
    outcome.check()


TEXT = (
    "g (float[40, 256] X, int64[512, 1] I, float[512, 256] U) => (float[40, 256] Y) "
    '{ A = Exp (X) B = ScatterND <reduction = "add"> (A, I, U) Y = Tanh (B) }'
)


def test_rows_of_a_table_are_added_up_in_parallel_without_a_race() -> None:
    x, i, u = torch.randn(40, 256), torch.randint(-40, 40, (512, 1)), torch.randn(512, 256)
    compiled = program(TEXT, ("native",))
    expected = x.exp().index_add(0, i[:, 0] % 40, u).tanh()
    for _ in range(3):
        torch.testing.assert_close(compiled([x, i, u])[0], expected)
    network = lowered_text(TEXT, ("native",))[1].network
    (lanes,) = [n.map for n in network.state.nodes() if isinstance(n, MapEntry) and n.label == "ScatterND"]
    assert lanes.schedule == dace.ScheduleType.CPU_Multicore
    assert [str(r) for r in lanes.range] == ["(0, 3, 1)"], "lanes are columns: rows are written by anyone"


@pytest.mark.parametrize("bad", [40, -41, 10**9])
def test_a_position_outside_is_an_error_and_never_a_write(bad: int) -> None:
    compiled = program(TEXT, ("native",))
    with raises(ExecutionError, "[-40, 40)"):
        compiled([torch.randn(40, 256), torch.full((512, 1), bad), torch.randn(512, 256)])


def test_every_update_counts_as_one_read_and_one_write() -> None:
    network = lowered(CASES["wide rows"])
    _, cost = maps_cost(network)
    row = 130 * 4
    assert cost.unique_bytes == 2 * 9 * row + 3 * row + 3 * 8
    assert cost.total_bytes == 2 * 9 * row + 3 * (3 * row + 130 * 8)


def test_booleans_are_not_added() -> None:
    case = CASES["booleans"]
    case = Case(op=case.op, inputs=case.inputs, attributes={"reduction": "add"}, expected=case.expected)
    with raises(NoImplementationError, "ScatterElements", "reduction add"):
        lowered(case)


def test_what_is_scattered_into_stays_an_array() -> None:
    network = lowered_text(TEXT, ("native",))[1].network
    refused = fuse_maps(network).refused
    assert refused == {"A": golden(), "B": golden()}
    assert "[0:40, 0:256]" in refused["A"] and "[0:4]" in refused["A"]


def test_one_lane_is_one_thread() -> None:
    text = (
        "g (float[90000] X, int64[90000] I, float[90000] U) => (float[90000] Y) "
        '{ Y = ScatterElements <reduction = "add"> (X, I, U) }'
    )
    network = lowered_text(text, ("native",))[1].network
    (record,) = [p for p in network.passes if p.name == "schedule_maps"]
    assert [r.reason for r in record.refused] == [golden()]
