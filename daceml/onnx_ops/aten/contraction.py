"""Matrix products: mm, addmm and bmm over views, so that transposes and flattened batches cost nothing."""

from __future__ import annotations

from daceml.onnx_ops.aten.views import float_operands, no_empty_operand, view
from daceml.onnx_ops.registry import implements
from daceml.onnx_ops.tracing.tensor import Output, Tensor
from daceml.sdfg.external import AtenCall, TensorView
from daceml.sdfg.sizes import Size, product


def _matmul_refusal(A: Tensor, B: Tensor, Y: Output) -> str | None:
    if A.rank < 2 or B.rank < 2:
        return "a vector operand; torch's product of matrices takes two or more dimensions"
    batch_a, batch_b = A.shape[:-2], B.shape[:-2]
    if batch_a and batch_b and batch_a != batch_b:
        return f"batches {list(batch_a)} and {list(batch_b)} broadcast against each other"
    return no_empty_operand(A, B) or float_operands(A, B, Y)


@implements("MatMul", kind="aten", name="matmul", when=_matmul_refusal)
def matmul(A: Tensor, B: Tensor, Y: Output) -> AtenCall:
    """One mm where B is a matrix (A's batch is rows then), else one bmm."""
    m, k, n = A.shape[-2], A.shape[-1], B.shape[-1]
    batch = product(A.shape[:-2] if A.rank > 2 else B.shape[:-2])
    flops = 2 * product(Y.shape) * k
    if B.rank == 2:
        rows = batch * m
        arguments = (view(Y, (rows, n)), view(A, (rows, k)), view(B))
        return AtenCall(function="mm_out", arguments=arguments, writes=Y.name, flops=flops)
    matrices_a = view(A, (batch, m, k)) if A.rank > 2 else view(A, (batch, m, k), (0, k, 1))
    arguments = (view(Y, (batch, m, n)), matrices_a, view(B, (batch, k, n)))
    return AtenCall(function="bmm_out", arguments=arguments, writes=Y.name, flops=flops)


def _gemm_refusal(A: Tensor, B: Tensor, Y: Output, C: Tensor | None) -> str | None:
    return no_empty_operand(A, B) or float_operands(A, B, Y, C)


@implements("Gemm", kind="aten", name="addmm", when=_gemm_refusal)
def gemm(
    A: Tensor,
    B: Tensor,
    Y: Output,
    C: Tensor | None = None,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: int = 0,
    transB: int = 0,
) -> AtenCall:
    """Y = alpha A' B' + beta C; torch broadcasts C as ONNX does."""
    a, b, y = matrix_view(A, transA), matrix_view(B, transB), view(Y)
    flops = 2 * product(Y.shape) * A.shape[0 if transA else 1]
    if C is None and alpha == 1.0:
        return AtenCall(function="mm_out", arguments=(y, a, b), writes=Y.name, flops=flops)
    if C is None:  # with beta = 0 torch does not read the addend
        c, beta = y, 0.0
    else:
        c = view(C)
    return AtenCall(
        function="addmm_out", arguments=(y, c, a, b, float(beta), float(alpha)), writes=Y.name, flops=flops
    )


def matrix_view(X: Tensor, transposed: int) -> TensorView:
    """A matrix, or its transposition."""
    rows, columns = X.shape
    if not transposed:
        return view(X)
    strides: tuple[Size, ...] = (1, columns)
    return view(X, (columns, rows), strides)
