"""Lazy tensors: what they compose to, and when they become arrays."""

from __future__ import annotations

from collections.abc import Iterator

import dace
import numpy as np
import pytest

from daceml.onnx_ops.tracing.functions import where
from daceml.onnx_ops.tracing.indexing import common_factors
from daceml.onnx_ops.tracing.tensor import Output, Tensor, compute, element_reader, full, sum_over
from daceml.onnx_ops.tracing.trace import Refused, Trace, tracing
from daceml.sdfg.tasklet_code import print_tasklet
from tests.support.golden import raises

N = dace.symbol("N")


@pytest.fixture(autouse=True)
def trace() -> Iterator[Trace]:
    with tracing(Trace("Op", taken=("taken",), known_sizes=(N,))) as active:
        yield active


def x(*shape, name: str = "x", dtype: dace.typeclass = dace.float32) -> Tensor:
    return Tensor(shape, dtype, element_reader(name, dtype, shape), array=name)


def y(trace: Trace, *shape, dtype: dace.typeclass = dace.float32) -> Output:
    return Output(shape, dtype, "y", trace)


def told(trace: Trace) -> list[str]:
    """`target[index] over extents: reads -> code` of every computation."""
    lines = []
    for c in trace.computations:
        code = print_tasklet(c.value)
        reads = ", ".join(f"{a.array}[{', '.join(map(str, a.indices))}]" for a in code.reads.values())
        index = ", ".join(map(str, c.index))
        lines.append(f"{c.target}[{index}] over {list(c.extents)}: {reads} -> {code.code}")
    return lines


def test_elementwise_operations_compose_without_arrays(trace: Trace) -> None:
    y(trace, 2, 3)[:] = np.exp(x(2, 3)) * 2 + x(3, name="b")
    assert told(trace) == [
        "y[i0, i1] over [2, 3]: x[i0, i1], b[i1] -> _out = (exp(_a0) * dace.float32(2.0)) + _a1"
    ]


def test_a_dimension_of_one_element_is_read_where_it_is_written(trace: Trace) -> None:
    y(trace, 1, 3)[:] = x(1, 3) * x(1, 1, name="b")
    assert told(trace) == ["y[i0, i1] over [1, 3]: x[i0, i1], b[i0, 0] -> _out = _a0 * _a1"]


def test_a_reduction_that_is_assigned_needs_no_intermediate(trace: Trace) -> None:
    y(trace, 2)[:] = x(2, 3).mean(1) + 1
    assert told(trace) == [
        "y[i0] over [2]:  -> _out = dace.float32(_acc / dace.float64(3.0)) + dace.float32(1.0)",
    ]


def test_a_reduction_that_is_broadcast_becomes_an_intermediate(trace: Trace) -> None:
    y(trace, 2, 3)[:] = x(2, 3) - x(2, 3).max(1, keepdims=True)
    assert told(trace) == [
        "op_part_0[i0, i1] over [2, 1]:  -> _out = _acc",
        "y[i0, i1] over [2, 3]: x[i0, i1], op_part_0[i0, 0] -> _out = _a0 - _a1",
    ]
    assert [i.shape for i in trace.intermediates] == [(2, 1)]


def test_an_output_that_holds_a_reduction_is_read_instead_of_reduced_again(trace: Trace) -> None:
    total = x(2, 3).sum(1, keepdims=True)
    y(trace, 2, 1)[:] = total
    Output((2, 3), dace.float32, "z", trace)[:] = x(2, 3) / total
    assert told(trace)[1] == "z[i0, i1] over [2, 3]: x[i0, i1], y[i0, 0] -> _out = _a0 / _a1"


def test_nothing_is_known_outside_a_trace() -> None:
    tensor = x(2, 3).max(1)
    from daceml.onnx_ops.tracing import trace as module

    active = module._active.pop()
    try:
        with raises(RuntimeError):
            tensor.materialize()
    finally:
        module._active.append(active)


@pytest.mark.parametrize(
    ("view", "shape", "index"),
    [
        (lambda t: t.transpose(), (4, 3, 2), "x[i2, i1, i0]"),
        (lambda t: t.transpose(1, 2, 0), (3, 4, 2), "x[i2, i0, i1]"),
        (lambda t: t[:, 1:, ::-1], (2, 2, 4), "x[i0, i1 + 1, 3 - i2]"),
        (lambda t: t[1], (3, 4), "x[1, i0, i1]"),
        (lambda t: t[..., None, ::2], (2, 3, 1, 2), "x[i0, i1, 2*i3]"),
        (lambda t: t.expand_dims(0, -1), (1, 2, 3, 4, 1), "x[i1, i2, i3]"),
        (lambda t: t.reshape((6, 4)), (6, 4), "x[int_floor(i0, 3), i0 - 3*int_floor(i0, 3), i1]"),
        (lambda t: t.reshape((2, 3, 2, 2)), (2, 3, 2, 2), "x[i0, i1, 2*i2 + i3]"),
        (lambda t: t.broadcast_to((5, 2, 3, 4)), (5, 2, 3, 4), "x[i1, i2, i3]"),
    ],
)
def test_views_are_index_maps(trace: Trace, view, shape, index: str) -> None:
    viewed = view(x(2, 3, 4))
    assert viewed.shape == shape
    y(trace, *shape)[:] = viewed
    assert told(trace)[0].split(": ")[1].startswith(index)


def test_outputs_take_boxes_and_splits(trace: Trace) -> None:
    out = y(trace, 6, 4)
    out[1:3, ::2] = x(2, 2)
    out.split(0, (2, 3))[:] = x(2, 3, 4)
    out.permuted(1, 0)[:] = full((4, 6), 0, dace.float32)
    first = trace.computations[0]
    assert first.index == (first.params[0] + 1, 2 * first.params[1])
    assert [line.split(":")[0] for line in told(trace)[1:]] == [
        "y[3*i0 + i1, i2] over [2, 3, 4]",
        "y[i1, i0] over [4, 6]",
    ]


def test_compute_and_sum_over(trace: Trace) -> None:
    a, b = x(2, 3), x(3, 4, name="b")
    y(trace, 2, 4)[:] = compute((2, 4), lambda m, n: sum_over((3,), lambda k: a[m, k] * b[k, n]))
    (computation,) = trace.computations
    body = computation.value.args[0].args[0]
    assert print_tasklet(body).code == "_out = _a0 * _a1"


def test_rank_0(trace: Trace) -> None:
    y(trace)[:] = x() + 1
    assert told(trace) == ["y[0] over []: x[0] -> _out = _a0 + dace.float32(1.0)"]


def test_symbols_that_meet_must_be_known(trace: Trace) -> None:
    m = dace.symbol("M")
    y(trace, N)[:] = x(N) + x(m, name="b")
    with raises(Refused, "K and M"):
        x(dace.symbol("K")) + x(m, name="b")


@pytest.mark.parametrize(
    ("make", "facts"),
    [
        (lambda t: x(2, 3) + x(2), ["3 and 2"]),
        (lambda t: x(2, 0).max(1), ["max"]),
        (lambda t: x(2, 3).sum(2), ["axis 2", "rank 2"]),
        (lambda t: y(t, 2, 3).__setitem__(slice(None), x(2, 4)), ["[2, 4]", "[2, 3]"]),
    ],
)
def test_refusals(trace: Trace, make, facts: list[str]) -> None:
    with raises(Refused, *facts):
        make(trace)


def test_a_tensor_is_no_array() -> None:
    with raises(TypeError):
        np.asarray(x(2))
    with raises(TypeError, "np.add", "reduce"):
        np.add.reduce(x(2))


def test_where_of_tensors(trace: Trace) -> None:
    y(trace, 2)[:] = where(x(2) > 0, x(2), 0)
    assert told(trace)[0].endswith("_out = _a0 if (_a0 > dace.float32(0.0)) else dace.float32(0.0)")


@pytest.mark.parametrize(
    ("first", "second", "factors"),
    [
        ((6, 4), (2, 12), (2, 3, 4)),
        ((6, 4), (8, 3), None),
        ((2, 3, 4), (24,), (2, 3, 4)),
        ((N, 12), (N, 3, 4), (N, 3, 4)),
        ((4 * N, 2), (N, 8), (N, 4, 2)),
        ((1, 3, 1), (3,), (3,)),
        ((), (1, 1), ()),
        ((N,), (5,), None),
    ],
)
def test_common_factors_of_shapes(first, second, factors) -> None:
    found = common_factors(first, second)
    assert (found and found[0]) == factors
