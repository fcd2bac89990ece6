"""What operators move: counted by hand."""

from __future__ import annotations

import numpy as np
import pytest

from daceml.errors import EntryError, EstimationError
from daceml.operations.database.records import Operand, Operation
from daceml.operations.work.row_work import row_work
from tests.support.golden import raises


def operation(operator: str, *shapes: tuple[int, ...], dtype: str = "float32") -> Operation:
    return Operation(operator=operator, operands=tuple(Operand(shape=s, dtype=dtype) for s in shapes))


@pytest.mark.parametrize(
    ("made", "moved"),
    [
        (operation("aten::add", (8, 16), (8, 16)), 3 * 8 * 16 * 4),
        (operation("aten::gelu", (8, 16), dtype="bfloat16"), 2 * 8 * 16 * 2),
        (operation("aten::relu", (7,), dtype="float8_e4m3fn"), 2 * 7),
        (operation("aten::layer_norm", (8, 16), (16,), (16,)), 2 * 8 * 16 * 4 + 2 * 16 * 4),
        (operation("aten::gelu", ()), 2 * 4),
        (operation("aten::gelu", (0, 5)), 0),
    ],
    ids=["two operands", "bfloat16", "float8", "weights", "a scalar", "empty"],
)
def test_bytes(made: Operation, moved: int):
    assert row_work([made]).bytes_moved.tolist() == [moved]


def test_rows_and_kernels():
    work = row_work([operation("aten::softmax", (2, 3, size)) for size in (1024, 1025)])
    assert work.rows.tolist() == [6, 6] and work.length.tolist() == [1024, 1025]
    assert work.mode.tolist() == [0, 1]
    assert not np.any(row_work([operation("aten::add", (2, 5000), (2, 5000))]).mode)


@pytest.mark.parametrize(
    ("operations", "named"),
    [
        ([operation("aten::mm", (2, 2), (2, 2))], "aten::mm"),
        ([operation("aten::add", (2,)), operation("aten::gelu", (2,))], "aten::add, aten::gelu"),
        ([], "nothing"),
    ],
    ids=["another kind", "two operators", "nothing"],
)
def test_what_does_not_go_through_rows_is_refused(operations: list[Operation], named: str):
    with raises(EstimationError, named, "aten::softmax") as refused:
        row_work(operations)
    assert named in refused.value.what


def test_a_type_without_a_size_is_refused():
    with raises(EntryError, "'complex'", "float32"):
        row_work([operation("aten::add", (2,), (2,), dtype="complex")])
