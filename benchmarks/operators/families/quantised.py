"""Integers that stand for real numbers."""

from __future__ import annotations

from benchmarks.operators.draws import Chance, Draw, draws


@draws("QuantizeLinear")
def quantize(c: Chance, op: str) -> Draw:
    shape = c.shape(1, 3, empty=False)
    axis = c.axis(len(shape))
    kind = c.of(("int8", "uint8"))
    sizes = (shape[axis],) if c.one_in(2) else ()
    zero = c.values(sizes, kind)
    return Draw(
        op_type=op,
        inputs=[c.values(shape, "float32"), c.positive(sizes, "float32"), zero],
        attributes={"axis": axis},
        exact=True,
    )


@draws("DequantizeLinear")
def dequantize(c: Chance, op: str) -> Draw:
    shape = c.shape(1, 3, empty=False)
    axis = c.axis(len(shape))
    kind = c.of(("int8", "uint8", "int32"))
    sizes = (shape[axis],) if c.one_in(2) else ()
    zero = None if kind == "int32" or c.one_in(3) else c.values(sizes, kind)
    return Draw(
        op_type=op,
        inputs=[c.values(shape, kind), c.positive(sizes, "float32"), zero],
        attributes={"axis": axis},
    )
