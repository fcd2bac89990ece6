"""Dimensions that ONNX's shape inference leaves open because it does no arithmetic on names.

Sources of an expression: the formula of windows (convolutions and pooling), the sum of Concat, and a straight
line through what inference found for numbers, over the symbols or over the operand's dimension of the same
axis (Pad, Slice, Resize). All are guesses until the trials that were not used for them agree, too; see
`shape_probe`.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace

import onnx_ir as ir
import sympy
from dace import symbolic

from daceml.frontend.onnx_import.declared_shape_check import Probe
from daceml.frontend.onnx_import.declared_types import Declared, DeclaredDim
from daceml.frontend.onnx_import.symbols import Dim, SymbolTable

# A trial, and the size that a dimension has in it
Point = tuple[Probe, int]

_WINDOWS = frozenset(["AveragePool", "Conv", "LpPool", "MaxPool"])


def fit_dims(
    model: ir.Model, types: Mapping[str, Declared], probes: Sequence[Probe], symbols: SymbolTable
) -> dict[str, Declared]:
    """Types in which open dimensions are now expressions, by value name; only those that changed."""
    found: dict[str, Declared] = {}
    for node in model.graph:
        for index, value in enumerate(node.outputs):
            entry = types.get(value.name or "")
            shape = _shape(entry, value.name or "", probes)
            if entry is None or shape is None or all(map(symbols.is_known, shape)):
                continue
            operands = [types.get(o.name or "", Declared()) for o in node.inputs if o is not None]
            dims = tuple(
                dim if symbols.is_known(dim) else _dim(node, index, axis, operands, probes, symbols)
                for axis, dim in enumerate(shape)
            )
            if dims != shape:
                found[value.name or ""] = replace(entry, shape=dims)
    return found


def _shape(entry: Declared | None, name: str, probes: Sequence[Probe]) -> tuple[DeclaredDim, ...] | None:
    """The shape as far as it is known; its rank may be known from the trials alone."""
    if entry is None or entry.refusal or entry.shape is not None:
        return None if entry is None or entry.refusal else entry.shape
    trial = probes[0].types.get(name, Declared()).shape if probes else None
    return None if trial is None else (None,) * len(trial)


def _dim(
    node: ir.Node,
    index: int,
    axis: int,
    operands: Sequence[Declared],
    probes: Sequence[Probe],
    symbols: SymbolTable,
) -> DeclaredDim:
    sizes = [(trial, _at(trial, node.outputs[index], axis)) for trial in probes if trial.refutes]
    points = [(trial, size) for trial, size in sizes if size is not None]
    if len(points) < 3:
        return None
    candidates = _lines_of_symbols(points, symbols)
    given = operands[0].shape if operands else None
    dim = given[axis] if given is not None and axis < len(given) else None
    if dim is not None and symbols.is_known(dim):
        candidates.append(
            _line(points, [_value(symbols.dim(dim), trial) for trial, _ in points], symbols.dim(dim))
        )
        if node.op_type in _WINDOWS and index == 0 and given is not None:
            candidates.append(_windows(node, axis - 2, len(given) - 2, symbols.dim(dim)))
    if node.op_type == "Concat":
        parts = [o.shape[axis] for o in operands if o.shape is not None and axis < len(o.shape)]
        if len(parts) == len(operands) and all(map(symbols.is_known, parts)):
            candidates.append(
                sum((symbols.dim(part) for part in parts if part is not None), sympy.Integer(0))
            )
    fitting = (
        c for c in candidates if c is not None and all(_value(c, trial) == size for trial, size in points)
    )
    return next((symbols.text(candidate) for candidate in fitting), None)


def _lines_of_symbols(points: Sequence[Point], symbols: SymbolTable) -> list[Dim | None]:
    """a + b N for every symbol, and a + b N + c M for every two, as far as points are left to check it."""
    names = sorted({name for trial, _ in points for name in trial.sizes})
    chosen = [choice for count in (1, 2) for choice in itertools.combinations(names, count)]
    return [_line_of_symbols(points, choice, symbols) for choice in chosen if len(choice) + 2 <= len(points)]


def _line_of_symbols(points: Sequence[Point], names: Sequence[str], symbols: SymbolTable) -> Dim | None:
    used = points[: len(names) + 1]
    rows = sympy.Matrix([[1, *(trial.sizes[name] for name in names)] for trial, _ in used])
    if rows.det() == 0:
        return None
    constant, *slopes = rows.solve(sympy.Matrix([size for _, size in used]))
    if not all(number.is_Integer for number in (constant, *slopes)):
        return None
    return constant + sum(
        (slope * symbols.named(n) for slope, n in zip(slopes, names, strict=True)), sympy.Integer(0)
    )


def _line(points: Sequence[Point], operand: Sequence[int], dim: Dim) -> Dim | None:
    """a + b size, for the size of an operand."""
    (first, start), (second, end) = (operand[0], points[0][1]), (operand[1], points[1][1])
    if first == second or (end - start) % (second - first):
        return None
    slope = (end - start) // (second - first)
    return sympy.Integer(start - slope * first) + slope * dim


def _windows(node: ir.Node, spatial: int, rank: int, size: Dim) -> Dim | None:
    """floor((size + pads - dilation (kernel - 1) - 1 + stride) / stride), or its ceiling."""
    kernel, pads = _kernel(node), _numbers(node, "pads", [0] * 2 * rank)
    strides, dilations = (_numbers(node, name, [1] * rank) for name in ("strides", "dilations"))
    if spatial < 0 or not len(kernel) == len(strides) == len(dilations) == len(pads) // 2 == rank:
        return None
    stride = strides[spatial]
    if stride < 1:
        return None
    if node.attributes.get_string("auto_pad", "NOTSET") in ("SAME_UPPER", "SAME_LOWER"):
        return symbolic.int_floor(size + stride - 1, stride)
    room = size + pads[spatial] + pads[spatial + rank] - dilations[spatial] * (kernel[spatial] - 1) - 1
    up = stride - 1 if node.attributes.get_int("ceil_mode", 0) else 0
    if up and (any(pads) or stride > kernel[spatial]):
        return None  # a last window that would start in the padding is left out
    # not floor(room / stride) + 1: C++ rounds to zero, and a window larger than the tensor has negative room
    return symbolic.int_floor(room + up + stride, stride)


def _kernel(node: ir.Node) -> Sequence[int]:
    weight = node.inputs[1] if len(node.inputs) > 1 else None
    shape = list(weight.shape or ())[2:] if node.op_type == "Conv" and weight is not None else []
    return _numbers(node, "kernel_shape", [size for size in shape if isinstance(size, int)])


def _numbers(node: ir.Node, name: str, default: list[int]) -> list[int]:
    attribute = node.attributes.get(name)
    return (
        default if attribute is None or attribute.type != ir.AttributeType.INTS else list(attribute.as_ints())
    )


def _value(expression: Dim, trial: Probe) -> int:
    """Its value for the sizes of a trial; -1, which is no size, where that is none."""
    if isinstance(expression, int):
        return expression
    value = symbolic.evaluate(expression, {free: trial.sizes[str(free)] for free in expression.free_symbols})
    return int(str(value)) if str(value).isdecimal() else -1


def _at(trial: Probe, value: ir.Value, axis: int) -> int | None:
    shape = trial.types.get(value.name or "", Declared()).shape
    dim = shape[axis] if shape is not None and axis < len(shape) else None
    return dim if isinstance(dim, int) else None
