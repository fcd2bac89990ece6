"""Which ONNX operators `daceml.runtime.weight_operators` computes, and what it needs to know of each.

A row says what follows element type and shape of the result in the numbers of a `Preparation`; it gives a
sentence where the operator is left alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import dace

from daceml.onnx_ops.schema.node import ONNXNode
from daceml.sdfg.scalar import FLOATS, INTEGERS
from daceml.transformations.coarse.transpositions import order_of
from daceml.transformations.rewriting.pattern import OperatorGraph
from daceml.transformations.rewriting.replacement import Value

_FLOATS, _SOLID = FLOATS, FLOATS | (INTEGERS - {dace.uint16, dace.uint32, dace.uint64}) | {dace.bool_}


@dataclass(frozen=True, kw_only=True)
class Call:
    """How an array is made.

    Attributes:
        operands: arrays that are read; "" for an absent one.
    """

    function: str
    operands: tuple[str, ...]
    numbers: tuple[tuple[int, ...], ...] = ()
    reals: tuple[float, ...] = ()


@dataclass(frozen=True, kw_only=True)
class _Site:
    """One operator, and which of its results is wanted."""

    node: ONNXNode
    operands: list[Value | None]
    result: Value
    place: int
    results: list[Value | None]

    @property
    def first(self) -> Value:
        assert self.operands[0] is not None
        return self.operands[0]

    def attribute(self, name: str) -> Any:
        """Value, default or None."""
        return self.node.attribute_values().get(name)

    def operand(self, place: int) -> Value | None:
        """None where it is absent."""
        return self.operands[place] if place < len(self.operands) else None

    def ints(self, place: int) -> list[int] | None:
        """The elements of a constant operand."""
        found = self.operand(place)
        return (
            None if found is None or found.constant is None else [int(n) for n in found.constant.reshape(-1)]
        )

    def axis(self, rank: int | None = None) -> int:
        """The attribute of that name, counted from the front."""
        return int(self.attribute("axis")) % max(self.first.rank if rank is None else rank, 1)

    def call(
        self,
        count: int | None = None,
        *numbers: tuple[int, ...],
        reals: tuple[float, ...] = (),
        name: str = "",
    ) -> Call:
        """With the first operands."""
        read = self.operands if count is None else [self.operand(k) for k in range(count)]
        arrays = tuple("" if v is None else v.array for v in read)
        return Call(function=name or self.node.op_type, operands=arrays, numbers=numbers, reals=reals)


def call_of(node: ONNXNode, graph: OperatorGraph, place: int) -> Call | str:
    """How a result of a node is made when a program is bound, or why it is not.

    Args:
        place: of the result.
    """
    if node.domain or node.op_type not in _ROWS or node.shapes_declared:
        return f"{node.op_type} is not computed when a program is bound"
    values = [
        [None if a is None else Value(a, graph) for a in side(node)]
        for side in (graph.operands, graph.results)
    ]
    operands, results = values
    result = results[place]
    assert result is not None
    for value in (*operands, result):
        if value is None:
            continue
        if value.dtype not in _SOLID:
            return f"its operands or result are of {value.dtype.to_string()}"
        if any(n == 0 for n in value.shape):
            return "an operand or the result is empty"
    return _ROWS[node.op_type](
        _Site(node=node, operands=operands, result=result, place=place, results=results)
    )


def _plain(site: _Site) -> Call | str:
    return site.call()


def _floats(site: _Site) -> Call | str:
    """Integers have rules of their own."""
    wrong = any(v is not None and v.dtype not in _FLOATS for v in (*site.operands, site.result))
    return "its operands are not floating-point" if wrong else site.call()


def _pair(site: _Site) -> Call | str:
    return _floats(site) if len(site.operands) == 2 else f"it has {len(site.operands)} operands"


def _view(site: _Site) -> Call | str:
    return site.call(1)


def _cast(site: _Site) -> Call | str:
    if site.result.dtype not in _FLOATS and site.first.dtype in _FLOATS:
        return "the result of converting a value out of range depends on the processor"
    return site.call(1)


def _transpose(site: _Site) -> Call | str:
    return site.call(1, order_of(site.node, site.first.rank))


def _concat(site: _Site) -> Call | str:
    return site.call(None, (site.axis(),))


def _slice(site: _Site) -> Call | str:
    starts, ends = site.ints(1), site.ints(2)
    rank = site.first.rank
    if starts is None or ends is None:
        return "its start or end is not constant"
    axes = list(range(len(starts))) if site.operand(3) is None else site.ints(3)
    steps = [1] * len(starts) if site.operand(4) is None else site.ints(4)
    if axes is None or steps is None or any(step <= 0 for step in steps):
        return "its axes or steps are not constant, or a step is negative"
    bounds = [(0, int(n), 1) for n in site.first.shape]  # pyright: ignore[reportArgumentType]
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        extent = int(site.first.shape[axis % rank])  # pyright: ignore[reportArgumentType]
        bounds[axis % rank] = slice(start, end, step).indices(extent)
    return site.call(1, *bounds)


def _split(site: _Site) -> Call | str:
    if any(v is None for v in site.results):
        return "one of its results is absent"
    axis = site.axis()
    sizes = [1 if v is None else int(v.shape[axis]) for v in site.results]  # pyright: ignore[reportArgumentType]
    start = sum(sizes[: site.place])
    bounds = [(0, int(n), 1) for n in site.first.shape]  # pyright: ignore[reportArgumentType]
    bounds[axis] = (start, start + sizes[site.place], 1)
    return site.call(1, *bounds, name="Slice")


def _gather(site: _Site) -> Call | str:
    counts_from_end = cast("int | None", site.node.lowest_index) is None
    return site.call(2, (site.axis(), int(counts_from_end)))


def _gemm(site: _Site) -> Call | str:
    if isinstance(found := _floats(site), str):
        return found
    turned = (int(site.attribute("transA")), int(site.attribute("transB")))
    return site.call(3, turned, reals=(float(site.attribute("alpha")), float(site.attribute("beta"))))


def _reduction(site: _Site) -> Call | str:
    if isinstance(found := _floats(site), str) and len(site.operands) == 1:
        return found
    if site.first.dtype not in _FLOATS:
        return "its operand is not floating-point"
    axes = site.attribute("axes") if site.operand(1) is None else site.ints(1)
    if axes is None and site.operand(1) is not None:
        return "its axes are not constant"
    if not axes and site.attribute("noop_with_empty_axes"):
        return "it reduces nothing"
    rank = site.first.rank
    return site.call(1, tuple(axis % rank for axis in axes) if axes else tuple(range(rank)))


def _along(site: _Site) -> Call | str:
    if site.node.since_version < 13:
        return "before opset 13 it flattened its operand"
    return _floats(site) if site.first.dtype not in _FLOATS else site.call(1, (site.axis(),))


def _clip(site: _Site) -> Call | str:
    found = _floats(site)
    return found if isinstance(found, str) else site.call(3)


_ROWS: dict[str, Callable[[_Site], Call | str]] = {
    **dict.fromkeys(
        ("Abs", "Add", "And", "Equal", "Greater", "Less", "Mul", "Neg", "Not", "Or", "Sub"), _plain
    ),
    **dict.fromkeys(("Ceil", "Cos", "Erf", "Exp", "Floor", "Log", "Reciprocal", "Relu", "Round"), _floats),
    **dict.fromkeys(("Sigmoid", "Sin", "Softplus", "Sqrt", "Tanh", "MatMul"), _floats),
    **dict.fromkeys(("Div", "Max", "Min", "Pow"), _pair),
    **dict.fromkeys(("Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze"), _view),
    **dict.fromkeys(("LogSoftmax", "Softmax"), _along),
    **dict.fromkeys(
        ("ReduceL2", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceSum", "ReduceSumSquare"), _reduction
    ),
    "Cast": _cast,
    "Clip": _clip,
    "Concat": _concat,
    "Gather": _gather,
    "Gemm": _gemm,
    "Slice": _slice,
    "Split": _split,
    "Transpose": _transpose,
    "Where": _plain,
}
