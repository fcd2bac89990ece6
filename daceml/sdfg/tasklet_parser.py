"""Tasklet code read back into scalar expressions: the inverse of `daceml.sdfg.tasklet_code`.

It takes what people write in DaCe programs, too: `math.exp`, `numpy.tanh`, `**`, plain numbers, several
outputs.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Callable, Mapping
from typing import Any

import dace
from dace import symbolic

from daceml.sdfg.scalar import (
    FLOATS,
    INTEGERS,
    OPERATIONS,
    DType,
    Scalar,
    apply,
    cast,
    compute_type,
    index_value,
    literal,
)
from daceml.sdfg.scalar_rewrite import rename


class UnreadableTasklet(Exception):  # noqa: N818  (an answer, not an error)
    """Code that has no scalar form; the message says what it is."""


# A plain number takes its type from its neighbours.
Value = Scalar | float | int | bool
# Takes the positions in brackets (none without); answers the element.
Element = Callable[[tuple[Scalar, ...]], Scalar]

_TABLE = {
    match[1]: name
    for name, operation in OPERATIONS.items()
    if (match := re.fullmatch(r"(\w+)\(\{0\}(?:, \{1\})?\)", operation.template))
}
_CALLS: dict[str, str] = {
    **_TABLE,
    **{"arc" + name: "a" + name for name in ("sin", "cos", "tan", "sinh", "cosh", "tanh")},
    "fabs": "abs",
    "maximum": "max",
    "minimum": "min",
    "fmod": "trunc_mod",
    "round": "rint",
    "power": "pow",
    "arctan2": "atan2",
}
_OF_SIZES = frozenset({"int_floor", "int_ceil", "Mod", "Max", "Min", "Abs"})
"""Functions of whole numbers in index expressions, as DaCe writes them."""

_BINARY: dict[type[ast.operator], str] = {
    ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "div", ast.Pow: "pow",
    ast.FloorDiv: "floor_div", ast.Mod: "floor_mod", ast.BitAnd: "bit_and", ast.BitOr: "bit_or",
    ast.BitXor: "bit_xor", ast.LShift: "shift_left", ast.RShift: "shift_right",
}  # fmt: skip
_COMPARE: dict[type[ast.cmpop], str] = {
    ast.Eq: "eq", ast.NotEq: "ne", ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge",
}  # fmt: skip
_ORDER: tuple[DType, ...] = (
    dace.bool_, dace.int8, dace.uint8, dace.int16, dace.uint16, dace.int32, dace.uint32, dace.int64,
    dace.uint64, dace.float32, dace.float64,
)  # fmt: skip


def parse_tasklet(
    code: list[ast.stmt], inputs: Mapping[str, Element], symbols: Mapping[str, Any]
) -> dict[str, Scalar]:
    """What the code assigns, name -> expression.

    Args:
        code: Python statements; names only, each assigned before it is used.
        inputs: connector -> its elements.
        symbols: name -> index expression, for map parameters and sizes.
    Raises:
        UnreadableTasklet: a statement or expression that has no scalar form.
    """
    reader = _Reader(inputs, symbols)
    for statement in code:
        reader.statement(statement)
    return {name: _typed(value) for name, value in reader.values.items()}


class _Reader:
    def __init__(self, inputs: Mapping[str, Element], symbols: Mapping[str, Any]) -> None:
        self.inputs, self.symbols = inputs, symbols
        self.values: dict[str, Value] = {}
        self.read: dict[str, Scalar] = {}

    def statement(self, node: ast.stmt) -> None:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                self.values[name] = self.expression(value)
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                self.values[name] = self.expression(value)
            case ast.If(test=test, body=body, orelse=other):
                self._branches(test, body, other)
            case ast.Expr(value=ast.Constant()) | ast.Pass():
                return
            case ast.Expr(value=value):
                self.expression(
                    value
                )  # its result is not used; what has no scalar form may do something else
            case _:
                raise UnreadableTasklet(f"the statement {ast.unparse(node)!r} has no scalar form")

    def _branches(self, test: ast.expr, body: list[ast.stmt], other: list[ast.stmt]) -> None:
        condition = _condition(_typed(self.expression(test)))
        before = self.values
        outcomes: list[dict[str, Value]] = []
        for statements in (body, other):
            self.values = dict(before)
            for statement in statements:
                self.statement(statement)
            outcomes.append(self.values)
        yes, no = outcomes
        if yes.keys() != no.keys():
            raise UnreadableTasklet(f"{sorted(yes.keys() ^ no.keys())} are assigned on one way only")
        self.values = {
            name: yes[name]
            if yes[name] is no[name]
            else apply("where", condition, *_together(yes[name], no[name]))
            for name in yes
        }

    def expression(self, node: ast.expr) -> Value:
        match node:
            case ast.Constant(value=bool() | int() | float() as value):
                return value
            case ast.Name(id=name):
                return self._name(name)
            case ast.Subscript(value=ast.Name(id=name), slice=position) if name in self.inputs:
                places = position.elts if isinstance(position, ast.Tuple) else [position]
                return self.inputs[name](tuple(_position(self.expression(p)) for p in places))
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                value = self.expression(operand)
                if isinstance(value, Scalar):
                    return literal(-value.data, value.dtype) if value.op == "literal" else apply("neg", value)
                return -value
            case ast.UnaryOp(op=ast.UAdd(), operand=operand):
                return self.expression(operand)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return apply("not", _condition(_typed(self.expression(operand))))
            case ast.UnaryOp(op=ast.Invert(), operand=operand):
                return apply("invert", _typed(self.expression(operand)))
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
                return self._apply(_BINARY[type(op)], left, right)
            case ast.BoolOp(op=op, values=values):
                name = "and" if isinstance(op, ast.And) else "or"
                parts = [_condition(_typed(self.expression(v))) for v in values]
                result = parts[0]
                for part in parts[1:]:
                    result = apply(name, result, part)
                return result
            case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _COMPARE:
                return self._apply(_COMPARE[type(op)], left, right)
            case ast.IfExp(test=test, body=body, orelse=other):
                condition = _condition(_typed(self.expression(test)))
                return apply("where", condition, *_together(self.expression(body), self.expression(other)))
            case ast.Call(func=function, args=arguments, keywords=[]):
                name = ast.unparse(function).rpartition(".")[2]
                if name in _OF_SIZES and (value := self._index(node)) is not None:
                    return value
                return self._call(name, arguments)
            case _:
                raise UnreadableTasklet(f"{ast.unparse(node)!r} has no scalar form")

    def _name(self, name: str) -> Value:
        if name in self.values:
            return self.values[name]
        if name in self.inputs:
            if name not in self.read:
                self.read[name] = self.inputs[name](())
            return self.read[name]
        if name in self.symbols:
            return index_value(self.symbols[name])
        if name in ("inf", "nan", "pi"):
            return getattr(math, name)
        raise UnreadableTasklet(f"nothing is known of the name {name!r}")

    def _call(self, name: str, arguments: list[ast.expr]) -> Scalar:
        dtype = getattr(dace, name.removeprefix("whole_"), None)
        if isinstance(dtype, dace.dtypes.typeclass) and len(arguments) == 1:
            value = self._converted(arguments[0], dtype)
            if value is not None:
                return value
        if name in _CALLS:
            return self._apply(_CALLS[name], *arguments)
        raise UnreadableTasklet(f"nothing is known of the function {name!r}")

    def _converted(self, argument: ast.expr, dtype: DType) -> Scalar | None:
        if dtype not in FLOATS | INTEGERS | {dace.bool_}:
            return None
        if dtype in INTEGERS and (value := self._index(argument, dtype)) is not None:
            return value  # index arithmetic in full: int64(i0 * 3 + 1)
        value = self.expression(argument)
        return cast(value, dtype) if isinstance(value, Scalar) else literal(value, dtype)

    def _index(self, node: ast.expr, dtype: DType = dace.int64) -> Scalar | None:
        """An expression over map parameters and sizes alone; None for any other one."""
        names = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
        if not names or not names <= self.symbols.keys() | _OF_SIZES or names & {*self.inputs, *self.values}:
            return None
        return index_value(rename(symbolic.pystr_to_symbolic(ast.unparse(node)), self.symbols), dtype)

    def _apply(self, operation: str, *arguments: ast.expr) -> Scalar:
        operands = _together(*(self.expression(a) for a in arguments))
        if operation == "div" and operands[0].dtype in INTEGERS:
            operands = [cast(o, dace.float64) for o in operands]
        integer = operands[0].dtype in INTEGERS
        if OPERATIONS[operation].operands == "float" and integer:
            operands = [cast(o, dace.float64) for o in operands]
        return apply(operation, *operands)


def _typed(value: Scalar | float | bool) -> Scalar:
    """A plain number has the type that C++ gives it."""
    if isinstance(value, Scalar):
        return value
    kind = dace.bool_ if isinstance(value, bool) else dace.int64 if isinstance(value, int) else dace.float64
    return literal(value, kind)


def _condition(value: Scalar) -> Scalar:
    return cast(value, dace.bool_)


def _position(value: Scalar | float) -> Scalar:
    return cast(_typed(value), dace.int64)


def _together(*values: Scalar | float | bool) -> list[Scalar]:
    """Operands in their common type; a whole number takes that of its neighbours."""
    scalars = [v for v in values if isinstance(v, Scalar)]
    numbers = [_typed(v) for v in values if not isinstance(v, Scalar) and not isinstance(v, int)]
    if not scalars and not numbers:
        return [_typed(v) for v in values]
    known = [compute_type(v.dtype) for v in (*scalars, *numbers)]
    common = max(known, key=_ORDER.index)
    return [cast(v, common) if isinstance(v, Scalar) else literal(v, common) for v in values]
