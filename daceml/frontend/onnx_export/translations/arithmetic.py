"""Elementwise arithmetic, comparison and logic.

Operands have one element type already (`daceml.frontend.onnx_export.promotion`), so a Python number takes the
type of the tensor beside it.
"""

from __future__ import annotations

import math
from typing import Any

import onnx_ir as ir
import torch

from daceml.frontend.onnx_export.translations import UntranslatableError, translates
from daceml.frontend.onnx_export.translations.emit import (
    FLOATS,
    Size,
    Value,
    broadcast,
    cast,
    full,
    op,
    result_dtype,
    typed,
)
from daceml.frontend.onnx_export.translations.precision import keeps_numbers, rounds_once
from daceml.frontend.onnx_export.translations.torch_kernels import kernel

Operand = Value | float

UNARY = {
    "abs": "Abs",
    "acos": "Acos",
    "acosh": "Acosh",
    "asin": "Asin",
    "asinh": "Asinh",
    "atan": "Atan",
    "atanh": "Atanh",
    "bitwise_not": "BitwiseNot",
    "ceil": "Ceil",
    "cos": "Cos",
    "cosh": "Cosh",
    "erf": "Erf",
    "exp": "Exp",
    "floor": "Floor",
    "log": "Log",
    "logical_not": "Not",
    "neg": "Neg",
    "reciprocal": "Reciprocal",
    "round": "Round",
    "sin": "Sin",
    "sinh": "Sinh",
    "sqrt": "Sqrt",
    "tan": "Tan",
    "isnan": "IsNaN",
    "isinf": "IsInf",
}

BINARY = {
    "mul": ("Mul", None),
    "div": ("Div", None),
    "eq": ("Equal", None),
    "lt": ("Less", None),
    "gt": ("Greater", None),
    "le": ("LessOrEqual", None),
    "ge": ("GreaterOrEqual", None),
    "logical_and": ("And", "BOOL"),
    "logical_or": ("Or", "BOOL"),
    "logical_xor": ("Xor", "BOOL"),
    "maximum": ("Max", None),
    "minimum": ("Min", None),
}


_ORDERED = frozenset({"Less", "Greater", "LessOrEqual", "GreaterOrEqual"})


def _unary(operator: str) -> Any:
    def translate(self: Value) -> Value:
        if operator == "Not" and self.dtype != ir.DataType.BOOL:
            return op.Not(cast(self, ir.DataType.BOOL))
        if operator == "BitwiseNot" and self.dtype == ir.DataType.BOOL:
            return op.Not(self)
        if self.dtype not in FLOATS and operator in ("IsNaN", "IsInf"):
            return op.And(typed(op.Cast(self, to=ir.DataType.BOOL), self, dtype=ir.DataType.BOOL), False)
        if self.dtype not in FLOATS and operator in ("Round", "Ceil", "Floor"):
            return op.Identity(self)
        if self.dtype == ir.DataType.UINT8 and operator == "Neg":
            # 0 - x, modulo 256; ONNX negates signed numbers only
            return op.Sub(full((), 0, self.dtype), self)
        return getattr(op, operator)(self)

    return translate


def _binary(operator: str, kind: str | None) -> Any:
    def translate(self: Operand, other: Operand) -> Value:
        if kind is not None:
            wanted = ir.DataType[kind]
            self, other = (cast(x, wanted) if isinstance(x, Value) else x for x in (self, other))
        elif operator == "Mul" and isinstance(self, Value) and self.dtype == ir.DataType.BOOL:
            return op.And(self, other)
        elif operator in _ORDERED and isinstance(self, Value) and self.dtype == ir.DataType.BOOL:
            # False < True
            self, other = (cast(x, ir.DataType.UINT8) if isinstance(x, Value) else x for x in (self, other))
        elif operator in ("Max", "Min") and isinstance(self, Value) and self.dtype == ir.DataType.BOOL:
            return (op.Or if operator == "Max" else op.And)(self, other)
        elif operator == "Div" and isinstance(self, Value) and self.dtype not in FLOATS:
            raise UntranslatableError(f"true division of {self.dtype}")
        return getattr(op, operator)(self, other)

    # torch rounds the number that it adds, or compares with, to the tensor's type
    return keeps_numbers(translate) if operator in ("Mul", "Div") else translate


for _name, _operator in UNARY.items():
    translates(f"aten.{_name}.default")(_unary(_operator))
for _name, _row in BINARY.items():
    _overloads = ("default",) if _name[:3] in ("log", "max", "min") else ("Tensor", "Scalar")
    translates(*(f"aten.{_name}.{_overload}" for _overload in _overloads))(_binary(*_row))


def _bits(logical: str, bitwise: str) -> Any:
    def translate(self: Operand, other: Operand) -> Value:
        kinds = {operand.dtype for operand in (self, other) if isinstance(operand, Value)}
        return getattr(op, logical if kinds == {ir.DataType.BOOL} else bitwise)(self, other)

    return translate


for _word in ("and", "or", "xor"):
    _title = _word.capitalize()
    translates(
        *(
            f"aten.{_name}.{_kind}"
            for _name in (f"__{_word}__", f"bitwise_{_word}")
            for _kind in ("Tensor", "Scalar")
        )
    )(_bits(_title, f"Bitwise{_title}"))


def _shift(direction: str) -> Any:
    def translate(self: Operand, other: Operand) -> Value:
        first, second = _both(self, other)
        if first.dtype != ir.DataType.UINT8:
            # signed numbers: torch's own translation casts them back and forth
            raise UntranslatableError(f"a shift of {first.dtype}")
        return op.BitShift(first, second, direction=direction)

    return translate


for _side in ("left", "right"):
    translates(
        f"aten.bitwise_{_side}_shift.Tensor",
        f"aten.bitwise_{_side}_shift.Tensor_Scalar",
        f"aten.__{_side[0]}shift__.Scalar",
        f"aten.__{_side[0]}shift__.Tensor",
    )(_shift(_side.upper()))


def _joined(*operands: Operand) -> list[Size] | None:
    return broadcast(*(operand for operand in operands if isinstance(operand, Value)))


def _scaled(operand: Operand, alpha: float) -> Operand:
    if alpha == 1:
        return operand
    return typed(op.Mul(operand, alpha), operand) if isinstance(operand, Value) else operand * alpha


@translates("aten.add.Tensor", "aten.add.Scalar")
def add(self: Operand, other: Operand, alpha: float = 1) -> Value:
    if isinstance(self, Value) and self.dtype == ir.DataType.BOOL:
        return op.Or(self, other)
    return op.Add(self, _scaled(other, alpha))


@translates("aten.round.decimals")
@rounds_once
def round_decimals(self: Value, *, decimals: int = 0) -> Value:
    if self.dtype not in FLOATS:
        raise UntranslatableError(f"digits of {self.dtype}")
    scale = float(10 ** abs(decimals))
    there, back = (op.Mul, op.Div) if decimals >= 0 else (op.Div, op.Mul)
    return back(typed(op.Round(typed(there(self, scale), self)), self), scale)


@translates("aten.sub.Tensor", "aten.sub.Scalar")
def sub(self: Operand, other: Operand, alpha: float = 1) -> Value:
    return op.Sub(self, _scaled(other, alpha))


@translates("aten.rsub.Tensor", "aten.rsub.Scalar")
def rsub(self: Operand, other: Operand, alpha: float = 1) -> Value:
    return op.Sub(other, _scaled(self, alpha))


@translates("aten.ne.Tensor", "aten.ne.Scalar")
def ne(self: Value, other: Operand) -> Value:
    return op.Not(typed(op.Equal(self, other), dtype=ir.DataType.BOOL, shape=_joined(self, other)))


@translates("aten.div.Tensor_mode", "aten.div.Scalar_mode")
@rounds_once
def div_mode(self: Value, other: Operand, *, rounding_mode: str | None = None) -> Value:
    if rounding_mode == "floor":
        return floor_divide(self, other)
    quotient = op.Div(self, other)
    if rounding_mode is None or self.dtype not in FLOATS:
        # ONNX divides integers towards zero
        return quotient
    quotient = typed(quotient, dtype=self.dtype, shape=_joined(self, other))
    return _truncated(quotient)


def _both(self: Operand, other: Operand) -> tuple[Value, Value]:
    """Two operands, of which one may be a number."""
    like = self if isinstance(self, Value) else other
    assert isinstance(like, Value)
    kind = like.dtype or ir.DataType.FLOAT
    first, second = (x if isinstance(x, Value) else full((), x, kind) for x in (self, other))
    return first, second


@translates("aten.floor_divide.default", "aten.floor_divide.Scalar")
@rounds_once
def floor_divide(self: Operand, other: Operand) -> Value:
    return kernel("FloorDivide")(*_both(self, other))


@translates("aten.remainder.Tensor", "aten.remainder.Scalar", "aten.remainder.Scalar_Tensor")
def remainder(self: Operand, other: Operand) -> Value:
    """The sign is the divisor's, as in Python; torch rounds a number to the tensor's type first."""
    return _remainder(*_both(self, other))


@rounds_once
def _remainder(first: Value, second: Value) -> Value:
    # ONNX's Mod has the divisor's sign for integers only
    return op.Mod(first, second) if first.dtype not in FLOATS else kernel("Remainder")(first, second)


@translates("aten.fmod.Tensor", "aten.fmod.Scalar")
def fmod(self: Value, other: Operand) -> Value:
    """The sign is the dividend's, as in C."""
    return op.Mod(*_both(self, other), fmod=1)


@translates("aten.trunc.default")
def trunc(self: Value) -> Value:
    if self.dtype not in FLOATS:
        return op.Identity(self)
    return _truncated(self)


def _truncated(x: Value) -> Value:
    """Towards zero; what is between -1 and 0 becomes -0.0."""
    below = typed(op.Less(x, 0.0), x, dtype=ir.DataType.BOOL)
    return op.Where(below, typed(op.Ceil(x), x), typed(op.Floor(x), x))


@translates("aten.frac.default")
def frac(self: Value) -> Value:
    return op.Sub(self, typed(_truncated(self), self))


@translates("aten.pow.Tensor_Scalar")
def pow_scalar(self: Value, exponent: float) -> Value:
    if exponent == 2:
        return op.Mul(self, self)
    if exponent == 0.5:
        return op.Sqrt(self)
    if exponent == -1:
        return op.Reciprocal(self)
    return op.Pow(self, full((), exponent, self.dtype or ir.DataType.FLOAT))


@translates("aten.pow.Tensor_Tensor", "aten.pow.Scalar")
def pow_tensor(self: Operand, exponent: Value) -> Value:
    base = self if isinstance(self, Value) else full((), self, exponent.dtype or ir.DataType.FLOAT)
    return op.Pow(base, exponent)


@translates("aten.square.default")
def square(self: Value) -> Value:
    return op.Mul(self, self)


@translates("aten.log1p.default", "aten.special_log1p.default")
def log1p(self: Value) -> Value:
    return kernel("Log1p")(self)


@translates("aten.expm1.default", "aten.special_expm1.default")
def expm1(self: Value) -> Value:
    return kernel("Expm1")(self)


@translates("aten.log2.default")
@rounds_once
def log2(self: Value) -> Value:
    return op.Mul(typed(op.Log(self), self), 1 / math.log(2))


@translates("aten.deg2rad.default")
@rounds_once
def deg2rad(self: Value) -> Value:
    return op.Mul(self if self.dtype in FLOATS else cast(self, ir.DataType.FLOAT), math.pi / 180)


@translates("aten.rad2deg.default")
@rounds_once
def rad2deg(self: Value) -> Value:
    return op.Mul(self if self.dtype in FLOATS else cast(self, ir.DataType.FLOAT), 180 / math.pi)


@translates("aten.log10.default")
@rounds_once
def log10(self: Value) -> Value:
    return op.Mul(typed(op.Log(self), self), 1 / math.log(10))


@translates("aten.lerp.Scalar", "aten.lerp.Tensor")
@rounds_once
def lerp(self: Value, end: Value, weight: Operand) -> Value:
    """From the nearer end, so that both ends are met."""
    distance = typed(op.Sub(end, self), dtype=self.dtype, shape=broadcast(end, self))
    shape = broadcast(distance, weight) if isinstance(weight, Value) else broadcast(distance)
    share = weight if isinstance(weight, Value) else full((), weight, self.dtype or ir.DataType.FLOAT)
    rest = typed(op.Sub(1.0, share), share)

    def part(of: Value) -> Value:
        return typed(op.Mul(distance, of), dtype=self.dtype, shape=shape)

    if not isinstance(weight, Value):
        return op.Add(self, part(share)) if abs(weight) < 0.5 else op.Sub(end, part(rest))
    near = typed(op.Add(self, part(share)), dtype=self.dtype, shape=shape)
    far = typed(op.Sub(end, part(rest)), dtype=self.dtype, shape=shape)
    small = typed(op.Less(typed(op.Abs(weight), weight), 0.5), weight, dtype=ir.DataType.BOOL)
    return op.Where(small, near, far)


@translates("aten.rsqrt.default")
@rounds_once
def rsqrt(self: Value) -> Value:
    return op.Reciprocal(typed(op.Sqrt(self), self))


@translates("aten.where.self")
def where(condition: Value, self: Value, other: Value) -> Value:
    return op.Where(condition, self, other)


@translates("aten.where.ScalarOther", "aten.where.ScalarSelf")
def where_scalar(condition: Value, self: Operand, other: Operand) -> Value:
    return op.Where(condition, self, other)


@translates("aten.where.Scalar")
def where_scalars(condition: Value, self: float, other: float) -> Value:
    kinds = {type(self), type(other)}
    floating = ir.DataType.from_numpy(torch.empty(0).numpy().dtype)
    dtype = floating if float in kinds else ir.DataType.INT64 if int in kinds else ir.DataType.BOOL
    return op.Where(condition, full((), self, dtype), full((), other, dtype))


@translates("aten.addcmul.default")
def addcmul(self: Value, tensor1: Value, tensor2: Value, *, value: float = 1) -> Value:
    product = typed(op.Mul(tensor1, tensor2), dtype=self.dtype, shape=broadcast(tensor1, tensor2))
    return op.Add(self, _scaled(product, value))


@translates("aten.addcdiv.default")
def addcdiv(self: Value, tensor1: Value, tensor2: Value, *, value: float = 1) -> Value:
    quotient = typed(op.Div(tensor1, tensor2), dtype=self.dtype, shape=broadcast(tensor1, tensor2))
    return op.Add(self, _scaled(quotient, value))


@translates("aten.to.dtype", "prims.convert_element_type.default")
def to_dtype(self: Value, dtype: ir.DataType, *_: Any, **__: Any) -> Value:
    return op.Cast(self, to=dtype)


@translates("aten._to_copy.default", "aten.to.dtype_layout", "aten.to.device")
def to_copy(self: Value, *positional: Any, dtype: ir.DataType | None = None, **_: Any) -> Value:
    named = next((argument for argument in positional if isinstance(argument, ir.DataType)), dtype)
    wanted = result_dtype(named, self.dtype)
    return op.Identity(self) if wanted == self.dtype else op.Cast(self, to=wanted)


@translates("aten.type_as.default", "aten.to.other")
def type_as(self: Value, other: Value, *_: Any, **__: Any) -> Value:
    return op.Identity(self) if self.dtype == other.dtype else op.Cast(self, to=other.dtype)


@translates("aten.sinc.default")
@rounds_once
def sinc(self: Value) -> Value:
    """sin(pi x) / (pi x), and 1 at 0, where its slope is 0."""
    angle = typed(op.Mul(self, math.pi), self)
    zero = typed(op.Equal(self, 0.0), self, dtype=ir.DataType.BOOL)
    one = full((), 1.0, self.dtype or ir.DataType.FLOAT)
    quotient = op.Div(typed(op.Sin(angle), self), typed(op.Where(zero, one, angle), self))
    return op.Where(zero, one, typed(quotient, self))
