"""What ONNX shape inference leaves open, as it does no arithmetic on names.

Whole numbers that are computed from symbolic sizes, as in Shape -> Gather -> Add -> Slice, are expressions in
the symbols: where a slice begins, or how much a border adds, is known before the model runs. The sizes of
what is made with such numbers are known then, and the one size of a Reshape that the number of elements
decides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import cycle, islice
from typing import Any

import numpy as np
import onnx_ir as ir
import sympy

from daceml.frontend.onnx_import.declared_types import SMALL_ELEMENTS, Declared, DeclaredDim
from daceml.frontend.onnx_import.symbols import Dim, SymbolTable
from daceml.sdfg.rounded_division import ceil_div, floor_div, floor_mod, never_negative
from daceml.sdfg.sizes import product

Elements = tuple[Dim, ...]
_WHOLE = (ir.DataType.INT64, ir.DataType.INT32)


def size_values(
    model: ir.Model, types: Mapping[str, Declared], values: Mapping[str, np.ndarray], symbols: SymbolTable
) -> dict[str, Elements]:
    """Elements of integer scalars and vectors, by value name: constants, and what follows from sizes.

    Args:
        model: read only.
        types: what is known about each value's type.
        values: small tensors whose value is known.
    """
    known: dict[str, Elements] = {
        name: tuple(map(int, array.reshape(-1)))
        for name, array in values.items()
        if array.ndim <= 1 and array.dtype.kind == "i"
    }
    for node in model.graph:
        rule = _RULES.get(node.op_type)
        name = node.outputs[0].name if node.outputs else None
        if rule is None or not name or node.domain not in ("", "ai.onnx", "daceml"):
            continue
        found = rule(_Node(node, types, known, symbols))
        if found is not None and len(found) <= SMALL_ELEMENTS:
            known[name] = found
    return known


def sizes_from_values(
    model: ir.Model, types: Mapping[str, Declared], known: Mapping[str, Elements], symbols: SymbolTable
) -> dict[str, Declared]:
    """Types whose open dimensions follow from values; only those that are known now."""
    found: dict[str, Declared] = {}
    for node in model.graph:
        name = node.outputs[0].name if node.outputs else None
        entry = types.get(name or "")
        if not name or entry is None or entry.refusal or node.domain not in ("", "ai.onnx"):
            continue
        if entry.shape is not None and all(map(symbols.is_known, entry.shape)):
            continue
        operands = [known.get(value.name or "") if value is not None else None for value in node.inputs]
        shape = _shape(node.op_type, operands)
        if shape is not None:
            found[name] = Declared(element=entry.element, shape=tuple(map(symbols.text, shape)))
    return found


def _shape(operator: str, operands: Sequence[Elements | None]) -> Elements | None:
    match operator, operands:
        case "Range", [(start,), (limit,), (delta,)] if isinstance(delta, int) and delta:
            length = ceil_div(limit - start, delta)
            return (length if never_negative(length) else sympy.Max(length, 0),)
        case "ConstantOfShape", [tuple(sizes)]:
            return sizes
        case "Reshape", [_, tuple(sizes)] if all(never_negative(n) and n != 0 for n in sizes):
            return sizes
        case _:
            return None


def solve_reshapes(
    model: ir.Model, types: Mapping[str, Declared], symbols: SymbolTable
) -> dict[str, Declared]:
    """Types of Reshape results in which a single unknown dimension is now known, by value name."""
    solved: dict[str, Declared] = {}
    for node in model.graph:
        if node.op_type != "Reshape" or node.domain not in ("", "ai.onnx") or node.inputs[0] is None:
            continue
        source, name = node.inputs[0].name or "", node.outputs[0].name or ""
        given = solved.get(source, types.get(source, Declared()))
        wanted = types.get(name, Declared())
        if given.shape is None or wanted.shape is None or not all(map(symbols.is_known, given.shape)):
            continue
        missing = _missing_dim(given.shape, wanted.shape, symbols)
        if missing is not None:
            shape = tuple(dim if symbols.is_known(dim) else missing for dim in wanted.shape)
            solved[name] = replace(wanted, shape=shape)
    return solved


def _missing_dim(
    given: tuple[DeclaredDim, ...], wanted: tuple[DeclaredDim, ...], symbols: SymbolTable
) -> DeclaredDim:
    known = [dim for dim in wanted if symbols.is_known(dim)]
    rest = _count(known, symbols)
    if len(known) != len(wanted) - 1 or rest == 0:
        return None
    # x[a, b] -> y[c, ?]: ? = a b / c. A rational quotient could hide a remainder: a wrong shape.
    quotient = _count(given, symbols) / rest
    floors = {call: sympy.Dummy(integer=True) for call in quotient.atoms(sympy.Function)}
    missing = sympy.cancel(quotient.xreplace(floors))
    if not missing.is_polynomial() or sympy.denom(missing) != 1:
        return None
    return symbols.text(missing.xreplace({dummy: call for call, dummy in floors.items()}))


def _count(shape: Iterable[DeclaredDim], symbols: SymbolTable) -> Any:
    return sympy.Mul(*(symbols.dim(dim) for dim in shape if dim is not None))


class _Node:
    """What a rule asks about a node."""

    def __init__(
        self,
        node: ir.Node,
        types: Mapping[str, Declared],
        known: Mapping[str, Elements],
        symbols: SymbolTable,
    ) -> None:
        self.node, self.types, self.known, self.symbols = node, types, known, symbols

    def elements(self, place: int) -> Elements | None:
        value = self.node.inputs[place] if place < len(self.node.inputs) else None
        return None if value is None else self.known.get(value.name or "")

    def numbers(self, place: int, default: Sequence[int] | None = None) -> tuple[int, ...] | None:
        """Elements that are no expressions."""
        if place >= len(self.node.inputs) or self.node.inputs[place] is None:
            return None if default is None else tuple(default)
        found = self.elements(place)
        return found if found is not None and all(isinstance(n, int) for n in found) else None

    def rank(self, place: int) -> int | None:
        value = self.node.inputs[place]
        shape = None if value is None else self.types.get(value.name or "", Declared()).shape
        return None if shape is None else len(shape)

    def sizes(self) -> Elements | None:
        value = self.node.inputs[0]
        shape = None if value is None else self.types.get(value.name or "", Declared()).shape
        if shape is None or not all(map(self.symbols.is_known, shape)):
            return None
        return tuple(self.symbols.dim(dim) for dim in shape if dim is not None)


def _shape_of(node: _Node) -> Elements | None:
    sizes = node.sizes()
    start, end = (node.node.attributes.get(name) for name in ("start", "end"))
    if sizes is None:
        return None
    return sizes[0 if start is None else start.as_int() : None if end is None else end.as_int()]


def _size_of(node: _Node) -> Elements | None:
    sizes = node.sizes()
    return None if sizes is None else (product(sizes),)


def _same(node: _Node) -> Elements | None:
    return node.elements(0)


def _cast(node: _Node) -> Elements | None:
    return node.elements(0) if node.node.attributes["to"].as_int() in _WHOLE else None


def _gather(node: _Node) -> Elements | None:
    data, places = node.elements(0), node.numbers(1)
    if data is None or places is None or node.rank(0) != 1 or (node.rank(1) or 0) > 1:
        return None
    return (
        tuple(data[place] for place in places) if all(-len(data) <= p < len(data) for p in places) else None
    )


def _slice(node: _Node) -> Elements | None:
    data, start, end = node.elements(0), node.numbers(1), node.numbers(2)
    step = node.numbers(4, [1])
    if data is None or not start or not end or not step or node.rank(0) != 1:
        return None
    return data[slice(start[0], None if step[0] < 0 and end[0] < -len(data) else end[0], step[0])]


def _concat(node: _Node) -> Elements | None:
    parts = [node.elements(place) for place in range(len(node.node.inputs))]
    return tuple(n for part in parts if part is not None for n in part) if None not in parts else None


def _elementwise(function: Callable[..., Any]) -> Callable[[_Node], Elements | None]:
    def rule(node: _Node) -> Elements | None:
        operands = [node.elements(place) for place in range(len(node.node.inputs))]
        known = [operand for operand in operands if operand is not None]
        count = max(map(len, known), default=0)
        if len(known) < len(operands) or any(len(operand) not in (1, count) for operand in known):
            return None
        rows = zip(*(islice(cycle(operand), count) for operand in known), strict=True)
        found = [function(*row) for row in rows]
        return None if None in found else tuple(n if isinstance(n, int) else _number(n) for n in found)

    return rule


def _number(value: Any) -> Dim:
    value = sympy.expand(value)
    return int(value) if value.is_Integer else value


def _divided(value: Any, divisor: Any) -> Any:
    """Rounded to zero, where that is known."""
    if not _divides(divisor) and value != 0:
        return None
    rounded = floor_div(value, divisor)
    return rounded if never_negative(value) or rounded == ceil_div(value, divisor) else None


def _divides(divisor: Any) -> bool:
    """Whether it is positive, unless a size makes it 0: docs/limits.md says what a program does then."""
    return divisor != 0 and never_negative(divisor)


def _remainder(value: Any, divisor: Any) -> Any:
    return floor_mod(value, divisor) if _divides(divisor) else None


def _modulo(node: _Node) -> Elements | None:
    fmod = node.node.attributes.get("fmod")
    return None if fmod is not None and fmod.as_int() else _elementwise(_remainder)(node)


def _floored(value: Any, divisor: Any) -> Any:
    return floor_div(value, divisor) if _divides(divisor) else None


def _extreme(function: Callable[..., Any], python: Callable[..., int]) -> Callable[[_Node], Elements | None]:
    def rule(*values: Any) -> Any:
        return python(values) if all(isinstance(value, int) for value in values) else function(*values)

    return _elementwise(rule)


_RULES: dict[str, Callable[[_Node], Elements | None]] = {
    "Shape": _shape_of,
    "Size": _size_of,
    **dict.fromkeys(["Identity", "Squeeze", "Unsqueeze", "Reshape", "Flatten"], _same),
    "Cast": _cast,
    "Gather": _gather,
    "Slice": _slice,
    "Concat": _concat,
    "Add": _elementwise(lambda a, b: a + b),
    "Sub": _elementwise(lambda a, b: a - b),
    "Mul": _elementwise(lambda a, b: a * b),
    "Neg": _elementwise(lambda a: -a),
    "Div": _elementwise(_divided),
    "Mod": _modulo,
    "FloorDivide": _elementwise(_floored),
    "Max": _extreme(sympy.Max, max),
    "Min": _extreme(sympy.Min, min),
}
