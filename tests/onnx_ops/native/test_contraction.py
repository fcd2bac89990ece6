"""Matrix products and contractions against numpy."""

from __future__ import annotations

import numpy as np
import pytest

from tests.onnx_ops.native.single_node import Case, Outcome, random

A, B = random(3, 5), random(5, 4, seed=1)


def matmul(a: np.ndarray, b: np.ndarray, **more) -> Case:
    return Case(
        op="MatMul",
        inputs=[a, b],
        expected=[np.asarray(np.matmul(a.astype(np.float64), b.astype(np.float64))).astype(a.dtype)],
        **more,
    )


def gemm(*inputs: np.ndarray, **attributes) -> Case:
    return Case(op="Gemm", inputs=inputs, attributes=attributes)


def einsum(equation: str, *inputs: np.ndarray) -> Case:
    return Case(
        op="Einsum", inputs=inputs, attributes={"equation": equation}, expected=[np.einsum(equation, *inputs)]
    )


CASES = {
    "matrices": matmul(A, B),
    "batches": matmul(random(2, 1, 3, 5), random(4, 5, 2)),
    "vector and matrix": matmul(random(5), B),
    "matrix and vector": matmul(A, random(5)),
    "vectors": matmul(random(5), random(5, seed=1)),
    "vector and batch": matmul(random(5), random(2, 5, 3)),
    "batch and vector": matmul(random(2, 3, 5), random(5)),
    "inner size 1": matmul(random(3, 1), random(1, 4)),
    "inner size 0": matmul(random(3, 0), random(0, 4)),
    "integers": matmul(
        np.arange(6, dtype=np.int32).reshape(2, 3), np.arange(6, dtype=np.int32).reshape(3, 2)
    ),
    "float64": matmul(A.astype(np.float64), B.astype(np.float64), rtol=1e-13),
    "float16": matmul(A.astype(np.float16), B.astype(np.float16), rtol=1e-3),
    "symbolic": matmul(random(7, 5), B, symbolic={7: "N"}),
    "symbolic batch": matmul(random(7, 3, 5), random(7, 5, 2), symbolic={7: "N"}),
    "gemm": gemm(A, B, random(4)),
    "gemm without C": gemm(A, B),
    "gemm column": gemm(A, B, random(3, 1)),
    "gemm scalar": gemm(A, B, np.array(0.5, np.float32)),
    "gemm full": gemm(A.T.copy(), B.T.copy(), random(3, 4), transA=1, transB=1, alpha=0.5, beta=-2.0),
    "einsum matrices": einsum("mk,kn->mn", A, B),
    "einsum dots": einsum("...ij,...jk->...ik", random(2, 3, 5), random(2, 5, 4)),
    "einsum diagonal": einsum("ii->i", random(4, 4)),
    "einsum trace": einsum("ii", random(4, 4)),
    "einsum implicit": einsum("ij,jk", A, B),
    "einsum three": einsum("ij,jk,kl->il", A, B, random(4, 2)),
    "einsum outer": einsum("i,j->ij", random(3), random(4)),
}


@pytest.mark.parametrize("title", CASES)
def test_values(outcome: Outcome) -> None:
    outcome.check()
