"""Embedding bags and segments: torch's kernel beside the loop over each segment."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from daceml.errors import ExecutionError, NoImplementationError
from daceml.onnx_ops.registry import KINDS, Kind
from tests.support.golden import golden, raises
from tests.support.operator_programs import chosen, program, refusal, run

BAGS = "g ({0}[V, 5] W, {1}[T] I, {1}[B] O) => ({0}[B, 5] Y) {{ Y = daceml.EmbeddingBagSum (W, I, O) }}"
WAYS: tuple[tuple[Kind, ...], ...] = (KINDS, ("native",))
# Positions, and where bags start: empty ones first, last and between, one bag, all of them empty, none.
CASES = [
    ([3, 1, 4, 1, 5, 9, 2, 6], [0, 0, 3, 3, 5, 8]),
    ([0, 10], [0]),
    ([7], [0, 1]),
    ([], [0, 0]),
    ([2, 2, 2], [0, 1, 2]),
    ([], []),
]


def bags(table: torch.Tensor, positions: torch.Tensor, starts: torch.Tensor) -> torch.Tensor:
    if not len(starts):
        return table.new_zeros(0, table.shape[1])
    return functional.embedding_bag(positions, table, starts, mode="sum")


@pytest.mark.parametrize("allowed", WAYS)
@pytest.mark.parametrize(("kind", "dtype"), [("float", torch.float32), ("double", torch.float64)])
def test_bags_of_any_size_by_one_program(kind: str, dtype: torch.dtype, allowed: tuple[Kind, ...]):
    compiled = program(BAGS.format(kind, "int64"), allowed)
    table = torch.randn(11, 5, dtype=dtype)
    for positions, starts in CASES:
        operands = table, torch.tensor(positions, dtype=torch.int64), torch.tensor(starts, dtype=torch.int64)
        torch.testing.assert_close(compiled(operands)[0], bags(*operands))


def test_positions_of_32_bits():
    table, positions, starts = torch.randn(7, 5), torch.tensor([6, 0, 3]).int(), torch.tensor([0, 2]).int()
    for allowed in WAYS:
        y = run(BAGS.format("float", "int32"), table, positions, starts, allowed=allowed)
        torch.testing.assert_close(y, bags(table, positions, starts))


@pytest.mark.parametrize("allowed", WAYS)
@pytest.mark.parametrize(
    ("positions", "starts"),
    [
        ([0, 11], [0, 1]),
        ([0, -1], [0, 1]),
        ([10**12, 0], [0]),
        ([0, 1], [0, 3]),
        ([0, 1], [0, -1]),
        ([0, 1], [1, 2]),
        ([0, 1, 2], [0, 2, 1]),
    ],
)
def test_positions_and_offsets_outside_are_errors_and_never_reads(
    positions: list[int], starts: list[int], allowed: tuple[Kind, ...]
):
    compiled = program(BAGS.format("float", "int64"), allowed)
    operands = torch.randn(11, 5), torch.tensor(positions), torch.tensor(starts)
    with raises(ExecutionError):
        compiled(operands)
    assert compiled((operands[0], torch.tensor([1]), torch.tensor([0])))[0].shape == (1, 5)


def test_an_empty_table_is_left_to_the_loop():
    text = BAGS.format("float", "int64").replace("V", "0", 1)
    assert refusal(text, "aten:embedding_bag") == golden()
    none = torch.zeros(0, dtype=torch.int64)
    assert torch.equal(run(text, torch.zeros(0, 5), none, torch.tensor([0, 0])), torch.zeros(2, 5))


def test_constant_offsets_are_checked_when_they_are_compiled():
    text = (
        "g (float[4, 2] R) => (float[2, 2] Y) "
        "{ O = Constant <value = int64[2] {0, 5}> () Y = daceml.SegmentSum (R, O) }"
    )
    with raises(NoImplementationError, "SegmentSum", "[0, 5)"):
        program(text)


@pytest.mark.parametrize("starts", [[0, 0, 2, 6, 6], [0], [0, 6]])
def test_sums_and_maxima_of_segments(starts: list[int]):
    rows, offsets = torch.randn(6, 3), torch.tensor(starts)
    rows[3, 1] = float("nan")
    text = (
        "g (float[T, 3] R, int64[B] O) => (float[B, 3] S, float[B, 3] M) "
        "{ S = daceml.SegmentSum (R, O) M = daceml.SegmentMax (R, O) }"
    )
    ends = [*starts[1:], 6]
    parts = [rows[a:b] for a, b in zip(starts, ends, strict=True)]
    sums, maxima = program(text)((rows, offsets))
    torch.testing.assert_close(sums, torch.stack([p.sum(0) for p in parts]), equal_nan=True)
    expected = [p.amax(0) if len(p) else torch.full((3,), -torch.inf) for p in parts]
    torch.testing.assert_close(maxima, torch.stack(expected), equal_nan=True)


def test_the_vendor_kernel_comes_first():
    assert chosen(BAGS.format("float", "int64")) == "aten:embedding_bag"
