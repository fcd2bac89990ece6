"""Gradients of matrix products: one mm, bmm or addbmm each over strided views, nothing is transposed."""

from __future__ import annotations

from daceml.onnx_ops.aten.views import GRADIENTS, float_operands, no_empty_operand, view
from daceml.onnx_ops.registry import implements
from daceml.onnx_ops.tracing.indexing import same
from daceml.onnx_ops.tracing.tensor import Output, Tensor
from daceml.sdfg.external import AtenCall, TensorView
from daceml.sdfg.sizes import Size, product


def _refusal(dY: Tensor, given: Tensor, result: Output) -> str | None:
    batches = given.shape[:-2], result.shape[:-2]
    if not any(same(product(b), 1) for b in batches) and batches[0] != batches[1]:
        return f"batches {list(batches[1])} and {list(batches[0])} broadcast against each other"
    return no_empty_operand(dY, given) or float_operands(dY, given, result)


def _refusal_a(dY: Tensor, B: Tensor, dA: Output) -> str | None:
    return _refusal(dY, B, dA)


def _refusal_b(dY: Tensor, A: Tensor, dB: Output) -> str | None:
    return _refusal(dY, A, dB)


@implements("MatMulGrad_A", domain=GRADIENTS, kind="aten", name="matmul", when=_refusal_a)
def matmul_gradient_a(dY: Tensor, B: Tensor, dA: Output) -> AtenCall:
    """dA = dY B^T: a batch of A is rows of one mm where B has none."""
    m, k = (1 if dA.rank == 1 else dA.shape[-2]), dA.shape[-1]
    n = 1 if B.rank == 1 else B.shape[-1]
    batch_a, batch_b = product(dA.shape[:-2]), product(B.shape[:-2])
    flops = 2 * product(dY.shape) * k
    if same(batch_b, 1):
        rows = batch_a * m
        arguments = (view(dA, (rows, k)), view(dY, (rows, n)), view(B, (n, k), (1, n)))
        return AtenCall(function="mm_out", arguments=arguments, writes=dA.name, flops=flops)
    y, b = view(dY, (batch_b, m, n)), view(B, (batch_b, n, k), (k * n, 1, n))
    if same(batch_a, 1):
        return _summed(dA, dY, y, b, flops)
    arguments = (view(dA, (batch_a, m, k)), y, b)
    return AtenCall(function="bmm_out", arguments=arguments, writes=dA.name, flops=flops)


@implements("MatMulGrad_B", domain=GRADIENTS, kind="aten", name="matmul", when=_refusal_b)
def matmul_gradient_b(dY: Tensor, A: Tensor, dB: Output) -> AtenCall:
    """dB = A^T dY: one mm over all rows where B has no batch."""
    m, k = (1 if A.rank == 1 else A.shape[-2]), A.shape[-1]
    n = 1 if dB.rank == 1 else dB.shape[-1]
    batch_a, batch_b = product(A.shape[:-2]), product(dB.shape[:-2])
    flops = 2 * product(dY.shape) * k
    if same(batch_b, 1):
        rows = batch_a * m
        arguments = (view(dB, (k, n)), view(A, (k, rows), (1, k)), view(dY, (rows, n)))
        return AtenCall(function="mm_out", arguments=arguments, writes=dB.name, flops=flops)
    step = 0 if same(batch_a, 1) else m * k
    a = view(A, (batch_b, k, m), (step, 1, k))
    arguments = (view(dB, (batch_b, k, n)), a, view(dY, (batch_b, m, n)))
    return AtenCall(function="bmm_out", arguments=arguments, writes=dB.name, flops=flops)


def _summed(result: Output, dY: Tensor, left: TensorView, right: TensorView, flops: Size) -> AtenCall:
    """The sum of a batch of products."""
    ignored = view(dY, (1, 1))
    return AtenCall(
        function="addbmm", arguments=(ignored, left, right), writes=result.name, fresh=True, flops=flops
    )


def _gemm_refusal_a(dY: Tensor, B: Tensor, dA: Output) -> str | None:
    return no_empty_operand(dY, B) or float_operands(dY, B, dA)


def _gemm_refusal_b(dY: Tensor, A: Tensor, dB: Output) -> str | None:
    return no_empty_operand(dY, A) or float_operands(dY, A, dB)


@implements("GemmGrad_A", domain=GRADIENTS, kind="aten", name="mm", when=_gemm_refusal_a)
def gemm_gradient_a(
    dY: Tensor,
    B: Tensor,
    dA: Output,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: int = 0,
    transB: int = 0,
) -> AtenCall:
    """dA' = alpha dY B'^T, the transpose of it where A is transposed."""
    if transA:
        return _product(dA, _matrix(B, transB), _matrix(dY, 1), alpha)
    return _product(dA, view(dY), _matrix(B, not transB), alpha)


@implements("GemmGrad_B", domain=GRADIENTS, kind="aten", name="mm", when=_gemm_refusal_b)
def gemm_gradient_b(
    dY: Tensor,
    A: Tensor,
    dB: Output,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: int = 0,
    transB: int = 0,
) -> AtenCall:
    """dB' = alpha A'^T dY, the transpose of it where B is transposed."""
    if transB:
        return _product(dB, _matrix(dY, 1), _matrix(A, transA), alpha)
    return _product(dB, _matrix(A, not transA), view(dY), alpha)


def _product(result: Output, left: TensorView, right: TensorView, alpha: float) -> AtenCall:
    target, flops = view(result), 2 * product((*left.sizes, right.sizes[1]))
    if alpha == 1.0:
        return AtenCall(function="mm_out", arguments=(target, left, right), writes=result.name, flops=flops)
    # with beta = 0 torch does not read the addend
    arguments = (target, target, left, right, 0.0, float(alpha))
    return AtenCall(function="addmm_out", arguments=arguments, writes=result.name, flops=flops)


def _matrix(X: Tensor, transposed: int | bool) -> TensorView:
    rows, columns = X.shape
    return view(X, (columns, rows), (1, columns)) if transposed else view(X)
