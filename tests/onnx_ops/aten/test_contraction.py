"""Matrix products through torch's stable C ABI: bit-identical to torch, refused where they would not be."""

from __future__ import annotations

import pytest
import torch

from tests.support.golden import golden
from tests.support.operator_programs import BOTH, chosen_of_all, joined, program, refusal, run


def matmul(a: tuple[int, ...], b: tuple[int, ...], dtype: str = "float") -> str:
    y = tuple(torch.matmul(torch.empty(a), torch.empty(b)).shape)

    def sizes(shape: tuple[int, ...]) -> str:
        return ", ".join(map(str, shape))

    return (
        f"g ({dtype}[{sizes(a)}] A, {dtype}[{sizes(b)}] B) => ({dtype}[{sizes(y)}] Y) {{ Y = MatMul (A, B) }}"
    )


SHAPES = [
    ((5, 7), (7, 3)),
    ((2, 5, 7), (7, 3)),
    ((2, 3, 5, 7), (2, 3, 7, 4)),
    ((5, 7), (4, 7, 3)),
    ((1, 1), (1, 1)),
]


def test_matmul_is_torchs_own():
    """Every pair of shapes, in both types, as one program."""
    texts: list[str] = []
    inputs: list[torch.Tensor] = []
    expected: dict[str, torch.Tensor] = {}
    for kind, dtype in (("float", torch.float32), ("double", torch.float64)):
        for a, b in SHAPES:
            x, w = torch.randn(a, dtype=dtype), torch.randn(b, dtype=dtype)
            texts.append(matmul(a, b, kind))
            inputs += [x, w]
            expected[f"{a} by {b}, {kind}"] = torch.matmul(x, w)
    text = joined(*texts)
    assert chosen_of_all(text) == ["aten:matmul"] * len(texts)
    found = dict(zip(expected, program(text)(inputs), strict=True))
    torch.testing.assert_close(found, expected, rtol=0, atol=0)


def test_bfloat16_goes_the_same_way():
    x, w = torch.randn(6, 8).bfloat16(), torch.randn(8, 4).bfloat16()
    assert torch.equal(run(matmul((6, 8), (8, 4), "bfloat16"), x, w), x @ w)


@pytest.mark.parametrize(
    ("a", "b", "facts"),
    [((7,), (7, 3), []), ((2, 1, 5, 7), (3, 7, 4), ["[2, 1]", "[3]"]), ((0, 7), (7, 3), [])],
)
def test_matmul_refuses_with_a_reason_and_the_native_form_is_right(a, b, facts: list[str]):
    text = matmul(a, b)
    reason = refusal(text, "aten:matmul")
    assert reason == golden()
    assert all(fact in reason for fact in facts)
    x, w = torch.randn(a), torch.randn(b)
    torch.testing.assert_close(run(text, x, w), torch.matmul(x, w))


def test_integers_are_left_to_the_native_form():
    text = matmul((3, 4), (4, 2), "int32")
    reason = refusal(text, "aten:matmul")
    assert reason == golden()
    assert "int32" in reason
    x, w = torch.arange(12, dtype=torch.int32).reshape(3, 4), torch.ones(4, 2, dtype=torch.int32)
    assert torch.equal(run(text, x, w), x @ w)


def gemm(attributes: str, addend: str) -> tuple[str, list[torch.Tensor], torch.Tensor]:
    """A graph, its operands and the result."""
    a = torch.randn((7, 5) if "transA" in attributes else (5, 7))
    b = torch.randn((3, 7) if "transB" in attributes else (7, 3))
    inputs = [a, b]
    c = f", float[{addend}] C" if addend else ""
    shapes = ", ".join(f"float[{', '.join(map(str, t.shape))}] {n}" for t, n in ((a, "A"), (b, "B")))
    call = f"Gemm <{attributes}> " if attributes else "Gemm "
    text = f"g ({shapes}{c}) => (float[5, 3] Y) {{ Y = {call}(A, B{', C' if addend else ''}) }}"
    alpha, beta = (0.5, 2.0) if "alpha" in attributes else (1.0, 1.0)
    expected = alpha * (a.t() if "transA" in attributes else a) @ (b.t() if "transB" in attributes else b)
    if addend:
        inputs.append(torch.randn([int(n) for n in addend.split(",")]))
        expected = expected + beta * inputs[-1]
    return text, inputs, expected


def test_gemm_is_addmm():
    """Every addend with all attributes, as one program."""
    cases = {
        f"<{attributes}> + [{addend}]": gemm(attributes, addend)
        for attributes in ("", "alpha = 0.5, beta = 2.0", "transA = 1, transB = 1", "transB = 1")
        for addend in ("", "3", "5, 3", "1", "5, 1")
    }
    text = joined(*(text for text, _, _ in cases.values()))
    assert chosen_of_all(text) == ["aten:addmm"] * len(cases)
    inputs = [x for _, given, _ in cases.values() for x in given]
    expected = {name: result for name, (_, _, result) in cases.items()}
    for allowed in BOTH:
        found = dict(zip(expected, program(text, allowed)(inputs), strict=True))
        torch.testing.assert_close(found, expected)
