"""Gradients of look-ups in tables by torch's kernel, whose threads own rows of the table."""

from __future__ import annotations

from daceml.onnx_ops.aten.gradients import gradient_call
from daceml.onnx_ops.aten.views import GRADIENTS, float_operands, no_empty_operand, view
from daceml.onnx_ops.registry import implements
from daceml.onnx_ops.tracing.tensor import Output, Tensor
from daceml.sdfg.external import AtenCall
from daceml.sdfg.sizes import product

_CALL_NS_A_ROW = 50.0
_LOOP_NS_A_READ, _LOOP_NS_A_ZERO = 0.1, 0.22
"""Torch's kernel takes the first for each position, however short its row. For the others, the generated loop
takes that much longer than the kernel: for each number that is added up, and for each of the table. Measured
with an EPYC, 1 and 2 threads, tables of 100 to 50,000 rows of 1 to 768 numbers."""


def _narrow_rows(indices: Tensor, table: Output) -> str | None:
    """Why the generated loop is faster than torch's kernel; None where it is not, or unknown."""
    count, width = product(indices.shape), product(table.shape[1:])
    if not isinstance(count, int) or not isinstance(width, int):
        return None
    longer_ns = width * (_LOOP_NS_A_READ * count + _LOOP_NS_A_ZERO * table.shape[0])
    if longer_ns < _CALL_NS_A_ROW * count:
        return f"a generated loop adds up {count} rows of {width} numbers faster"
    return None


def _table_refusal(indices: Tensor, dY: Tensor, table: Output) -> str | None:
    if not isinstance(table.shape[0], int):
        return "the number of rows is symbolic"
    if table.rank < 2:
        return "the rows are single numbers"
    return no_empty_operand(indices, dY, table) or float_operands(dY, table)


def _call(indices: Tensor, dY: Tensor, table: Output, padding: int, by_frequency: bool) -> AtenCall:
    count, width = product(indices.shape), product(table.shape[1:])
    return gradient_call(
        "embedding_backward",
        (table,),
        view(dY, (count, width)),
        view(indices, (count,)),
        table.shape[0],
        padding,
        by_frequency,
        flops=dY.size,
    )


def _gather_refusal(indices: Tensor, doutput: Tensor, ddata: Output, axis: int) -> str | None:
    if axis not in (0, -ddata.rank):
        return "rows are not along the first dimension"
    return _table_refusal(indices, doutput, ddata) or _narrow_rows(indices, ddata)


@implements("GatherGrad", domain=GRADIENTS, kind="aten", name="embedding_backward", when=_gather_refusal)
def gather_gradient(indices: Tensor, doutput: Tensor, ddata: Output, *, axis: int = 0) -> AtenCall:
    """`aten::embedding_dense_backward`."""
    return _call(indices, doutput, ddata, -1, False)


def _embedding_refusal(
    indices: Tensor, dresult: Tensor, dweight: Output, by_frequency: int = 0
) -> str | None:
    refusal = _table_refusal(indices, dresult, dweight)
    return refusal or (None if by_frequency else _narrow_rows(indices, dweight))


@implements(
    "EmbeddingGrad", domain=GRADIENTS, kind="aten", name="embedding_backward", when=_embedding_refusal
)
def embedding_gradient(
    indices: Tensor, dresult: Tensor, dweight: Output, *, padding: int = -1, by_frequency: int = 0
) -> AtenCall:
    """The same without the row of padding."""
    return _call(indices, dresult, dweight, padding, bool(by_frequency))


def _bag_refusal(indices: Tensor, offsets: Tensor, dresult: Tensor, dweight: Output) -> str | None:
    return no_empty_operand(offsets) or _table_refusal(indices, dresult, dweight)


@implements(
    "EmbeddingBagSumGrad", domain=GRADIENTS, kind="aten", name="embedding_bag_backward", when=_bag_refusal
)
def embedding_bag_gradient(indices: Tensor, offsets: Tensor, dresult: Tensor, dweight: Output) -> AtenCall:
    """Each look-up has the gradient of its bag."""
    arguments = (view(dresult), view(indices), view(offsets), dweight.shape[0])
    return gradient_call("embedding_bag_backward", (dweight,), *arguments, flops=dresult.size)
