"""Functions of one element."""

from __future__ import annotations

import numpy as np

from benchmarks.operators.draws import FLOATS, INTEGERS, Chance, Draw, draws


@draws(
    "Relu",
    "Sigmoid",
    "Tanh",
    "Softsign",
    "Softplus",
    "Exp",
    "Sin",
    "Cos",
    "Atan",
    "Mish",
    "HardSwish",
    "Sinh",
    "Cosh",
    "Asinh",
)
def smooth(c: Chance, op: str) -> Draw:
    x = c.values(c.shape(), "float32" if op in ("Mish", "HardSwish") else c.of(FLOATS))
    return Draw(op_type=op, inputs=[x])


@draws("Erf")
def error_function(c: Chance, op: str) -> Draw:
    # neither oracle has it in float64: see the unit tests
    return Draw(op_type=op, inputs=[c.values(c.shape(), "float32")])


@draws("Gelu")
def gelu(c: Chance, op: str) -> Draw:
    shape, dtype, approximate = c.shape(), c.of(FLOATS), c.of(("none", "tanh"))
    # neither oracle has Erf in float64: see the unit tests
    dtype = "float32" if (dtype, approximate) == ("float64", "none") else dtype
    return Draw(op_type=op, inputs=[c.values(shape, dtype)], attributes={"approximate": approximate})


@draws("Abs", "Neg", "Ceil", "Floor", "Round", "Sign", "IsNaN")
def exact_of_one(c: Chance, op: str) -> Draw:
    integers = op in ("Abs", "Neg", "Sign")
    dtype = c.of(("int32", "int64", "int8") if integers and c.one_in(3) else FLOATS)
    # of a NaN's sign ONNX says nothing: torch has 0, onnxruntime NaN
    return Draw(op_type=op, inputs=[c.values(c.shape(), dtype, special=op != "Sign")], exact=True)


@draws("Sqrt", "Log", "Reciprocal")
def of_positive(c: Chance, op: str) -> Draw:
    return Draw(op_type=op, inputs=[c.positive(c.shape(), c.of(FLOATS))])


@draws("Asin", "Acos", "Atanh", "Tan")
def of_unit(c: Chance, op: str) -> Draw:
    return Draw(op_type=op, inputs=[c.within(c.shape(), c.of(("float32", "float64")), -0.9, 0.9)])


@draws("Acosh")
def of_above_one(c: Chance, op: str) -> Draw:
    return Draw(op_type=op, inputs=[c.within(c.shape(), c.of(("float32", "float64")), 1.1, 5.0)])


@draws("IsInf")
def is_inf(c: Chance, op: str) -> Draw:
    attributes = {"detect_negative": c.between(0, 1), "detect_positive": c.between(0, 1)}
    x = c.values(c.shape(), c.of(("float32", "float64")), special=True)
    return Draw(op_type=op, inputs=[x], attributes=attributes, exact=True)


@draws("Add", "Sub", "Mul", "Max", "Min")
def arithmetic(c: Chance, op: str) -> Draw:
    shape, dtype = c.shape(), c.of((*FLOATS, "int32", "int64"))
    special = op in ("Add", "Sub", "Mul")
    x, y = c.values(shape, dtype, special=special), c.values(c.broadcast(shape), dtype, special=special)
    return Draw(op_type=op, inputs=[x, y] if c.one_in(2) else [y, x], exact=dtype != "float16")


@draws("Div")
def division(c: Chance, op: str) -> Draw:
    shape, dtype = c.shape(), c.of((*FLOATS, "int32", "int64"))
    divisor = c.values(c.broadcast(shape), dtype)
    if dtype.startswith("int"):
        divisor = np.where(divisor == 0, 3, divisor).astype(dtype)
    return Draw(op_type=op, inputs=[c.values(shape, dtype), divisor])


@draws("Mod")
def remainder(c: Chance, op: str) -> Draw:
    shape, dtype = c.shape(), c.of(("float32", "float64", "int32", "int64", "int8"))
    divisor = c.values(c.broadcast(shape), dtype)
    divisor = np.where(divisor == 0, 3, divisor).astype(dtype)
    fmod = 1 if dtype.startswith("float") else c.between(0, 1)
    return Draw(op_type=op, inputs=[c.values(shape, dtype), divisor], attributes={"fmod": fmod})


@draws("Pow")
def power(c: Chance, op: str) -> Draw:
    shape, dtype = c.shape(), c.of(("float32", "float64"))
    if c.one_in(2):
        return Draw(op_type=op, inputs=[c.positive(shape, dtype), c.values(c.broadcast(shape), dtype)])
    exponent = np.asarray(c.of((0, 1, 2, 3, -1)), c.of((dtype, "int64")))
    return Draw(op_type=op, inputs=[c.values(shape, dtype), exponent], constants=c.constant(1))


@draws("Sum", "Mean")
def variadic(c: Chance, op: str) -> Draw:
    shape, dtype = c.shape(), c.of(("float32", "float64"))
    inputs = [c.values(c.broadcast(shape), dtype) for _ in range(c.between(1, 4))]
    return Draw(op_type=op, inputs=[c.values(shape, dtype), *inputs], terms=4)


@draws("Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual")
def comparison(c: Chance, op: str) -> Draw:
    shape, dtype = c.shape(), c.of(("float32", "float64", "int32", "int64"))
    x = np.round(c.values(shape, dtype, special=True))
    y = np.round(c.values(c.broadcast(shape), dtype, special=True))
    return Draw(op_type=op, inputs=[x, y], exact=True)


@draws("And", "Or", "Xor")
def logical(c: Chance, op: str) -> Draw:
    shape = c.shape()
    return Draw(
        op_type=op, inputs=[c.values(shape, "bool"), c.values(c.broadcast(shape), "bool")], exact=True
    )


@draws("Not")
def negation(c: Chance, op: str) -> Draw:
    return Draw(op_type=op, inputs=[c.values(c.shape(), "bool")], exact=True)


@draws("BitwiseAnd", "BitwiseOr", "BitwiseXor")
def bitwise(c: Chance, op: str) -> Draw:
    shape, dtype = c.shape(), c.of(INTEGERS)
    return Draw(op_type=op, inputs=[c.values(shape, dtype), c.values(c.broadcast(shape), dtype)], exact=True)


@draws("BitShift")
def shift(c: Chance, op: str) -> Draw:
    shape, dtype = c.shape(), c.of(("uint8", "uint32", "uint64"))
    amount = np.minimum(c.values(c.broadcast(shape), dtype), 7).astype(dtype)
    attributes = {"direction": c.of(("LEFT", "RIGHT"))}
    return Draw(op_type=op, inputs=[c.values(shape, dtype), amount], attributes=attributes, exact=True)


@draws("Where")
def where(c: Chance, op: str) -> Draw:
    shape, dtype = c.shape(), c.of(("float32", "float64", "int64", "uint8"))
    condition = c.values(c.broadcast(shape), "bool")
    x, y = c.values(shape, dtype, special=True), c.values(c.broadcast(shape), dtype)
    return Draw(op_type=op, inputs=[condition, *((x, y) if c.one_in(2) else (y, x))], exact=True)


@draws("Clip")
def clip(c: Chance, op: str) -> Draw:
    dtype = c.of(("float32", "float64", "int32", "int64"))
    low = None if c.one_in(4) else np.asarray(-1, dtype)
    high = None if c.one_in(4) else np.asarray(c.of((1, 2, -2)), dtype)
    x = c.values(c.shape(), dtype, special=True)
    return Draw(op_type=op, inputs=[x, low, high], constants=c.constant(1, 2), exact=True)


@draws("Elu", "Selu", "Celu", "LeakyRelu", "ThresholdedRelu", "HardSigmoid")
def activation(c: Chance, op: str) -> Draw:
    attributes = {"alpha": c.of((0.125, 0.5, 1.5))} if c.one_in(2) else {}
    # defaults such as 0.01 are other numbers in float64
    dtype = c.of(("float32", "float64")) if attributes and op not in ("Celu", "Selu") else "float32"
    return Draw(op_type=op, inputs=[c.values(c.shape(), dtype)], attributes=attributes)


@draws("PRelu")
def prelu(c: Chance, op: str) -> Draw:
    shape, dtype = c.shape(1, 4), c.of(("float32", "float64"))
    return Draw(op_type=op, inputs=[c.values(shape, dtype), c.values(c.broadcast(shape), dtype)])


@draws("Cast")
def cast(c: Chance, op: str) -> Draw:
    import onnx

    source = c.of(("float32", "float64", "float16", "int32", "int64", "uint8", "bool"))
    target = c.of(("FLOAT", "DOUBLE", "FLOAT16", "BFLOAT16", "INT32", "INT64", "BOOL"))
    attributes = {"to": getattr(onnx.TensorProto, target)}
    return Draw(op_type=op, inputs=[c.values(c.shape(), source)], attributes=attributes, exact=True)
