"""Scalar expressions: the value of one element of a tensor, as a small graph of typed operations.

A `Scalar` is immutable; sharing is by value, found when the expression is printed
(`daceml.sdfg.tasklet_code`). Half-precision values are widened to float32 when read and narrowed when stored:
no operation below has a float16 or bfloat16 result except an explicit cast.
"""

from __future__ import annotations

import numbers
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import dace
import ml_dtypes
import numpy as np
import sympy
from dace import symbolic
from numpy.lib.mixins import NDArrayOperatorsMixin

# An int or a SymPy expression, and a dace.typeclass: both libraries' annotations say less than they accept.
Index = Any
DType = Any

HALF: frozenset[DType] = frozenset({dace.float16, dace.bfloat16})
FLOATS: frozenset[DType] = frozenset({dace.float16, dace.bfloat16, dace.float32, dace.float64})
INTEGERS: frozenset[DType] = frozenset(
    {dace.int8, dace.int16, dace.int32, dace.int64, dace.uint8, dace.uint16, dace.uint32, dace.uint64}
)
# C++ computes these in int: the result has to be cut back to the element type.
_NARROW: frozenset[DType] = frozenset({dace.int8, dace.int16, dace.uint8, dace.uint16})
# To these, floating-point numbers are cut by the functions `whole_int8`, … of `scalar_math.h`.
CUT: frozenset[DType] = _NARROW | {dace.int32, dace.int64}


class ElementTypeMismatch(TypeError):  # noqa: N818  (says what is wrong)
    """An operation on element types that it does not take."""


@dataclass(frozen=True, kw_only=True)
class Operation:
    """One scalar operation.

    Attributes:
        template: Python tasklet code, `{0}`, `{1}`, … for the operands.
        infix: operands and result need parentheses when nested.
        result: type of the result: that of the first operand, `bool`, or that of the second (`where`).
        operands: what it takes; `float` refuses integers.
    """

    template: str
    infix: bool = False
    result: Literal["same", "bool", "second"] = "same"
    operands: Literal["any", "float", "integer", "number", "bool"] = "number"


def _calls(names: str, operands: Literal["any", "float", "number"] = "float") -> dict[str, Operation]:
    return {name: Operation(template=f"{name}({{0}})", operands=operands) for name in names.split()}


_COLLECTIVE = ("sum", "product", "max", "min")

# One row per operation; what each name means in C++ is in `daceml/scalar_math.h`.
OPERATIONS: dict[str, Operation] = {
    **_calls("exp log log1p expm1 tanh erf erfc sqrt sin cos tan asin acos atan"),
    **_calls("sinh cosh asinh acosh atanh"),
    **_calls("floor ceil trunc rint sigmoid"),
    **_calls("sign abs rectify", "number"),
    **{
        f"is{k}": Operation(template=f"is{k}({{0}})", operands="float", result="bool") for k in ("nan", "inf")
    },
    **_calls("without_gradient", "any"),  # the operand itself; derivatives end here
    "neg": Operation(template="-{0}", infix=True),
    "not": Operation(template="not {0}", infix=True, operands="bool", result="bool"),
    "invert": Operation(template="~{0}", infix=True, operands="integer"),
    "add": Operation(template="{0} + {1}", infix=True),
    "sub": Operation(template="{0} - {1}", infix=True),
    "mul": Operation(template="{0} * {1}", infix=True),
    "div": Operation(template="{0} / {1}", infix=True, operands="float"),
    "trunc_div": Operation(template="trunc_div({0}, {1})", operands="integer"),
    "floor_div": Operation(template="floor_div({0}, {1})"),
    "floor_mod": Operation(template="floor_mod({0}, {1})"),
    "trunc_mod": Operation(template="trunc_mod({0}, {1})"),
    "pow": Operation(template="pow({0}, {1})"),
    "atan2": Operation(template="atan2({0}, {1})", operands="float"),
    "int_pow": Operation(template="int_pow({0}, {1})", operands="integer"),
    "max": Operation(template="max({0}, {1})", operands="any"),
    "min": Operation(template="min({0}, {1})", operands="any"),
    "nan_max": Operation(template="nan_max({0}, {1})", operands="float"),
    "nan_min": Operation(template="nan_min({0}, {1})", operands="float"),
    "and": Operation(template="{0} and {1}", infix=True, operands="bool", result="bool"),
    "or": Operation(template="{0} or {1}", infix=True, operands="bool", result="bool"),
    "eq": Operation(template="{0} == {1}", infix=True, operands="any", result="bool"),
    "ne": Operation(template="{0} != {1}", infix=True, operands="any", result="bool"),
    "lt": Operation(template="{0} < {1}", infix=True, result="bool"),
    "le": Operation(template="{0} <= {1}", infix=True, result="bool"),
    "gt": Operation(template="{0} > {1}", infix=True, result="bool"),
    "ge": Operation(template="{0} >= {1}", infix=True, result="bool"),
    "bit_and": Operation(template="{0} & {1}", infix=True, operands="integer"),
    "bit_or": Operation(template="{0} | {1}", infix=True, operands="integer"),
    "bit_xor": Operation(template="{0} ^ {1}", infix=True, operands="integer"),
    "shift_left": Operation(template="shift_left({0}, {1})", operands="integer"),
    "shift_right": Operation(template="shift_right({0}, {1})", operands="integer"),
    **{f"bits_{t}": Operation(template=f"bits_{t}({{0}})") for t in ("float32", "float64", "int32", "int64")},
    # of all threads of a block, of which the second operand says how many there are; on devices only
    **{f"block_{k}": Operation(template=f"block_{k}({{0}}, {{1}})") for k in _COLLECTIVE},
    "where": Operation(template="{1} if {0} else {2}", infix=True, operands="any", result="second"),
}


@dataclass(frozen=True, slots=True, eq=False)
class Scalar(NDArrayOperatorsMixin):
    """A node: an operation of the table above, or one of the leaves that the functions below make.

    Python's operators and numpy's ufuncs make new nodes; `==` too, so nodes are compared by `is`.

    Attributes:
        op: operation, or `literal`, `index`, `read`, `gather`, `cast`, `reduce`.
        dtype: element type of the value.
        args: operands.
        data: what a leaf holds, see the function that makes it.
    """

    op: str
    dtype: DType
    args: tuple[Scalar, ...] = ()
    data: Any = None

    def __hash__(self) -> int:
        return id(self)

    def astype(self, dtype: DType) -> Scalar:
        """The value converted to another element type."""
        return cast(self, dtype)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Scalar:
        if method != "__call__" or kwargs or ufunc.__name__ not in UFUNCS:
            raise ElementTypeMismatch(
                f"np.{ufunc.__name__} has no scalar form; write it with the operations of the table"
            )
        return apply(ufunc_operation(ufunc.__name__, self.dtype), *inputs)


Operand = Scalar | float | np.generic | sympy.Basic

# numpy's spelling of the operations.
UFUNCS: dict[str, str] = {
    **{name: name for name in ("exp", "log", "log1p", "expm1", "sqrt", "floor", "ceil", "trunc", "rint")},
    **{name: name for name in ("sin", "cos", "tan", "sinh", "cosh", "tanh")},
    **{name: name for name in ("sign", "isnan", "isinf")},
    **{f"arc{name}": f"a{name}" for name in ("sin", "cos", "tan", "sinh", "cosh", "tanh")},
    "add": "add", "subtract": "sub", "multiply": "mul", "divide": "div", "true_divide": "div", "power": "pow",
    "floor_divide": "floor_div", "remainder": "floor_mod", "fmod": "trunc_mod", "negative": "neg",
    "absolute": "abs", "maximum": "max", "minimum": "min", "equal": "eq", "not_equal": "ne", "less": "lt",
    "less_equal": "le", "greater": "gt", "greater_equal": "ge", "logical_and": "and", "logical_or": "or",
    "logical_xor": "ne", "logical_not": "not", "bitwise_and": "bit_and", "bitwise_or": "bit_or",
    "bitwise_xor": "bit_xor", "invert": "invert", "left_shift": "shift_left", "right_shift": "shift_right",
    "arctan2": "atan2",
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Reduction:
    """What a `reduce` node runs over: params `k0, k1, …` from 0 to extents.

    One extent may be data (an int64 Scalar without a reduction): a segment whose length is read.
    """

    operator: Literal["sum", "prod", "max", "min"]
    params: tuple[sympy.Basic, ...]
    extents: tuple[Index | Scalar, ...]


def ufunc_operation(name: str, dtype: DType) -> str:
    """Operation behind a ufunc; numpy spells the logic of booleans as bit operations."""
    if dtype == dace.bool_:
        name = {"bitwise_and": "logical_and", "bitwise_or": "logical_or", "bitwise_xor": "not_equal"}.get(
            name, name
        )
        name = "logical_not" if name == "invert" else name
    return UFUNCS[name]


def compute_type(dtype: DType) -> DType:
    """The type a value is computed in: float32 for half-precision types."""
    return dace.float32 if dtype in HALF else dtype


def accumulator_type(dtype: DType) -> DType:
    """The type a sum or product runs in: float64 for float32, float32 for half precision, else itself."""
    return {dace.float32: dace.float64, dace.float16: dace.float32, dace.bfloat16: dace.float32}.get(
        dtype, dtype
    )


def literal(value: float | np.generic, dtype: DType) -> Scalar:
    """A constant of a type."""
    if isinstance(value, np.generic):
        value = float(str(value)) if value.dtype.kind in "fV" else value.item()
    if dtype == dace.bool_:
        return Scalar("literal", dtype, data=bool(value))
    if dtype in FLOATS:
        # A half constant is rounded to its type once, then computed with in float32.
        rounding = {dace.float16: np.float16, dace.bfloat16: ml_dtypes.bfloat16}.get(dtype)
        return Scalar("literal", compute_type(dtype), data=float(rounding(value) if rounding else value))
    if isinstance(value, float) and not value.is_integer():
        raise ElementTypeMismatch(f"{value} is no value of {dtype.to_string()}: cast the operand first")
    return Scalar("literal", dtype, data=int(value))


def index_value(expression: Index, dtype: DType = dace.int64) -> Scalar:
    """A symbolic integer (map parameters, sizes) used as data."""
    if isinstance(expression, int) or expression.is_Integer:
        return literal(int(expression), dtype)
    return Scalar("index", dtype, data=expression)


def read(array: str, dtype: DType, indices: Sequence[Index | Scalar], shape: Sequence[Index]) -> Scalar:
    """One element of an array; an index that is itself data makes it a `gather`.

    `data` of a read is (array, indices); of a gather (array, indices, None where the index is data, shape).
    """
    dynamic = tuple(i for i in indices if isinstance(i, Scalar))
    if dynamic:
        known = tuple(None if isinstance(i, Scalar) else i for i in indices)
        value = Scalar("gather", dtype, dynamic, (array, known, tuple(shape)))
    else:
        value = Scalar("read", dtype, data=(array, tuple(indices)))
    return Scalar("cast", dace.float32, (value,)) if dtype in HALF else value


def cast(value: Scalar, dtype: DType) -> Scalar:
    """Conversion; a literal becomes another literal."""
    if value.dtype == dtype:
        return value
    if value.op == "literal" and dtype not in HALF and np.isfinite(value.data):
        number = value.data
        return literal(int(number) if dtype in INTEGERS else number, dtype)
    if dtype == dace.bool_:
        return apply("ne", value, 0)
    return Scalar("cast", dtype, (value,))


def bit_cast(value: Scalar, dtype: DType) -> Scalar:
    """The same bits taken for a type of the same width, float32, float64, int32 or int64."""
    return Scalar(f"bits_{dtype.to_string()}", dtype, (value,))


def reduce_over(
    operator: Literal["sum", "prod", "max", "min"],
    params: Sequence[sympy.Basic],
    extents: Sequence[Index | Scalar],
    body: Scalar,
    *,
    accumulate: DType | None = None,
) -> Scalar:
    """Reduction of `body` over a box; its type is that of the accumulator."""
    body = cast(body, compute_type(body.dtype))
    if accumulate is None:
        accumulate = accumulator_type(body.dtype) if operator in ("sum", "prod") else body.dtype
    if any(isinstance(e, int) and e == 0 for e in extents):
        return identity(operator, accumulate)
    reduction = Reduction(operator=operator, params=tuple(params), extents=tuple(extents))
    return Scalar("reduce", accumulate, (body,), reduction)


def identity(operator: str, dtype: DType) -> Scalar:
    """The value that a reduction starts from."""
    if operator in ("sum", "prod"):
        return literal(0 if operator == "sum" else 1, dtype)
    lowest = operator == "max"
    if dtype in FLOATS:
        return literal(-np.inf if lowest else np.inf, dtype)
    if dtype == dace.bool_:
        return literal(not lowest, dtype)
    limits = np.iinfo(dtype.type)
    return literal(limits.min if lowest else limits.max, dtype)


def apply(op: str, *operands: Operand) -> Scalar:
    """An operation of the table on scalars and plain numbers; a number takes the type of its neighbours."""
    scalars = [o for o in operands if isinstance(o, Scalar)]
    if op == "where" and isinstance(operands[0], Scalar):
        scalars = [o for o in operands[1:] if isinstance(o, Scalar)]
    if not scalars:
        raise ElementTypeMismatch(f"{op} of plain numbers only; convert one with literal()")
    kind = compute_type(scalars[0].dtype)
    args = tuple(_promote(o, kind) for o in operands)
    values = args[1:] if op == "where" else args
    if any(v.dtype != kind for v in values):
        found = ", ".join(v.dtype.to_string() for v in values)
        raise ElementTypeMismatch(f"{op} of different element types ({found}): cast one of them")
    if op in ("max", "min") and kind in FLOATS:
        op = "nan_" + op
    if op == "pow":
        return _power(*args)
    operation = OPERATIONS[op]
    _check(op, operation, kind)
    result = dace.bool_ if operation.result == "bool" else kind
    if kind == dace.bool_ and op in ("max", "min"):
        op = "or" if op == "max" else "and"
    value = Scalar(op, result, args)
    return (
        Scalar("cast", result, (value,)) if result in _NARROW and operation.infix and op != "where" else value
    )


def _power(base: Scalar, exponent: Scalar) -> Scalar:
    """x**p; p = 0.5 is a square root and small whole p are products, as torch computes them."""
    power = float(exponent.data) if exponent.op == "literal" else None
    if power is not None and abs(power) in (1, 2, 3):
        product = base
        for _ in range(int(abs(power)) - 1):
            product = apply("mul", product, base)
        if power > 0:
            return product
        if base.dtype in FLOATS:
            return apply("div", 1.0, product)
    if base.dtype in FLOATS and power is not None and abs(power) == 0.5:
        root = apply("sqrt", base)
        return root if power > 0 else apply("div", 1.0, root)
    return Scalar("pow" if base.dtype in FLOATS else "int_pow", base.dtype, (base, exponent))


def _promote(operand: Operand, dtype: DType) -> Scalar:
    if isinstance(operand, Scalar):
        return cast(operand, dace.float32) if operand.dtype in HALF else operand
    if isinstance(operand, symbolic.SymExpr | sympy.Basic):
        return index_value(operand, dtype)
    if not isinstance(operand, numbers.Number | np.generic):
        raise ElementTypeMismatch(f"{type(operand).__name__} is no scalar")
    return literal(operand, dtype)


def _check(op: str, operation: Operation, dtype: DType) -> None:
    allowed = {
        "any": True,
        "number": dtype != dace.bool_,
        "float": dtype in FLOATS,
        "integer": dtype in INTEGERS,
        "bool": dtype == dace.bool_,
    }[operation.operands]
    if not allowed:
        raise ElementTypeMismatch(f"{op} takes {operation.operands} operands, not {dtype.to_string()}")
