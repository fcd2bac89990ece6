"""Local ONNX functions of the domain "daceml" that stand for one ATen operator, with a body in standard ones.

Here each is a node of its own, with torch's numbers; another reader computes the body: the same function, or
the same distribution.
"""

# onnxscript types the operators for its scripts in part only.
# pyright: reportArgumentType=false, reportReturnType=false, reportOperatorIssue=false
# pyright: reportGeneralTypeIssues=false

from __future__ import annotations

from onnxscript import BOOL, FLOAT, INT64, script
from onnxscript import opset18 as op

from daceml.frontend.onnx_export.translations.embedding_functions import DACEML


@script(DACEML, default_opset=op)
def RandomIntegers(shape: INT64, low: int, high: int, dtype: int) -> INT64:  # noqa: N802
    """low + floor(u (high - low)), u in float64 from [0, 1)."""
    u = op.RandomUniformLike(op.ConstantOfShape(shape), dtype=11)
    least = op.Cast(op.Constant(value_int=low), to=11)
    span = op.Sub(op.Cast(op.Constant(value_int=high), to=11), least)
    return op.Cast(op.Add(op.Floor(op.Mul(u, span)), least), to=dtype)


@script(DACEML, default_opset=op)
def Exponential(like: FLOAT, rate: float) -> FLOAT:  # noqa: N802
    """-log(u) / rate; u in float32, from the number next to 0 to the one next to 1."""
    u = op.RandomUniformLike(like, dtype=1, low=2.9802322387695312e-08, high=0.9999999403953552)
    return op.CastLike(op.Div(op.Neg(op.Log(u)), op.Constant(value_float=rate)), like)


@script(DACEML, default_opset=op)
def BernoulliLike(like: FLOAT, p: float) -> FLOAT:  # noqa: N802
    """1 with probability p, else 0, in the shape and type of another tensor."""
    u = op.RandomUniformLike(like, dtype=1)
    return op.CastLike(op.Less(u, op.Constant(value_float=p)), like)


@script(DACEML, default_opset=op)
def TopK(data: FLOAT, k: int, axis: int, largest: int, sorted: int) -> tuple[FLOAT, INT64]:  # noqa: N802
    """The same values; of equal ones, ONNX takes the first."""
    count = op.Reshape(op.Constant(value_int=k), op.Constant(value_ints=[1]))
    values, indices = op.TopK(data, count, axis=axis, largest=largest, sorted=sorted)
    return values, indices


@script(DACEML, default_opset=op)
def HardTanh(data: FLOAT, low: FLOAT, high: FLOAT) -> FLOAT:  # noqa: N802
    """Clip; its gradient is 0 at the bounds."""
    return op.Clip(data, low, high)


@script(DACEML, default_opset=op)
def StopGradient(data: FLOAT) -> FLOAT:  # noqa: N802
    """The operand; in a backward pass no gradient goes through."""
    return op.Identity(data)


@script(DACEML, default_opset=op)
def Log1p(data: FLOAT) -> FLOAT:  # noqa: N802
    """log(u) x / (u - 1) with u = 1 + x rounded: the error of u cancels; x where u is 1 or infinite."""
    one = op.CastLike(op.Constant(value_float=1.0), data)
    u = op.Add(data, one)
    d = op.Sub(u, one)
    plain = op.Or(op.Equal(d, op.Sub(one, one)), op.Equal(d, op.Add(d, one)))
    exact = op.Div(op.Mul(op.Log(u), data), op.Where(plain, one, d))
    return op.Where(op.Equal(d, op.Sub(one, one)), data, op.Where(plain, op.Log(u), exact))


@script(DACEML, default_opset=op)
def Expm1(data: FLOAT) -> FLOAT:  # noqa: N802
    """2 sinh(x / 2) exp(x / 2): no difference of numbers that are close."""
    half = op.Div(data, op.CastLike(op.Constant(value_float=2.0), data))
    small = op.Mul(op.Mul(op.Sinh(half), op.Exp(half)), op.CastLike(op.Constant(value_float=2.0), data))
    one = op.CastLike(op.Constant(value_float=1.0), data)
    return op.Where(op.Less(op.Abs(data), one), small, op.Sub(op.Exp(data), one))


@script(DACEML, default_opset=op)
def Erfc(data: FLOAT) -> FLOAT:  # noqa: N802
    """1 - erf(x), whose absolute error alone is small: no standard operator keeps digits where erf is 1."""
    return op.Sub(op.CastLike(op.Constant(value_float=1.0), data), op.Erf(data))


@script(DACEML, default_opset=op)
def Entropy(data: FLOAT) -> FLOAT:  # noqa: N802
    """-x log(x); 0 at 0, and minus infinity for negative numbers."""
    zero = op.CastLike(op.Constant(value_float=0.0), data)
    lowest = op.CastLike(op.Constant(value_float=float("-inf")), data)
    flat = op.Where(op.Equal(data, zero), zero, op.Neg(op.Mul(data, op.Log(data))))
    return op.Where(op.Less(data, zero), lowest, flat)


@script(DACEML, default_opset=op)
def XLogY(first: FLOAT, second: FLOAT) -> FLOAT:  # noqa: N802
    """x log(y); 0 for 0 and a number."""
    zero = op.CastLike(op.Constant(value_float=0.0), first)
    number = op.Where(op.Equal(first, zero), zero, op.Mul(first, op.Log(second)))
    return op.Where(op.IsNaN(second), second, number)


@script(DACEML, default_opset=op)
def XLog1PY(first: FLOAT, second: FLOAT) -> FLOAT:  # noqa: N802
    """x log(1 + y); 0 for 0 and a number."""
    zero = op.CastLike(op.Constant(value_float=0.0), first)
    one = op.CastLike(op.Constant(value_float=1.0), first)
    number = op.Where(op.Equal(first, zero), zero, op.Mul(first, op.Log(op.Add(second, one))))
    return op.Where(op.IsNaN(second), second, number)


@script(DACEML, default_opset=op)
def BinaryCrossEntropy(probability: FLOAT, target: FLOAT) -> FLOAT:  # noqa: N802
    """-t log(p) - (1 - t) log(1 - p), with logarithms of -100 at least."""
    one = op.CastLike(op.Constant(value_float=1.0), probability)
    least = op.CastLike(op.Constant(value_float=-100.0), probability)
    hit, missed = op.Max(op.Log(probability), least), op.Max(op.Log(one - probability), least)
    return (target - one) * missed - target * hit


@script(DACEML, default_opset=op)
def SignBit(data: FLOAT) -> BOOL:  # noqa: N802
    """Less than 0, or a zero whose inverse is; False for every NaN."""
    zero = op.CastLike(op.Constant(value_float=0.0), data)
    negative_zero = op.And(op.Equal(data, zero), op.Less(op.Reciprocal(data), zero))
    return op.Or(op.Less(data, zero), negative_zero)


@script(DACEML, default_opset=op)
def LogAddExp(first: FLOAT, second: FLOAT) -> FLOAT:  # noqa: N802
    """max(a, b) + log(1 + exp(-|a - b|)): no exponential overflows."""
    one = op.CastLike(op.Constant(value_float=1.0), first)
    more = op.Log(op.Add(op.Exp(op.Neg(op.Abs(op.Sub(first, second)))), one))
    doubled = op.Add(first, op.CastLike(op.Constant(value_float=0.6931471805599453), first))
    return op.Where(op.Equal(first, second), doubled, op.Add(op.Max(first, second), more))


@script(DACEML, default_opset=op)
def LogAddExp2(first: FLOAT, second: FLOAT) -> FLOAT:  # noqa: N802
    """The same in base 2."""
    ln2 = op.CastLike(op.Constant(value_float=0.6931471805599453), first)
    one = op.CastLike(op.Constant(value_float=1.0), first)
    distance = op.Mul(op.Abs(op.Sub(first, second)), ln2)
    more = op.Div(op.Log(op.Add(op.Exp(op.Neg(distance)), one)), ln2)
    return op.Where(op.Equal(first, second), op.Add(first, one), op.Add(op.Max(first, second), more))
