"""Contractions as products of matrices: counted by hand."""

from __future__ import annotations

import numpy as np
import pytest

from daceml.operations.database.records import Attribute, Operand, Operation
from daceml.operations.models.products import TILES, products, tile_seconds
from tests.support.synthetic_operations import device


def operation(name: str, *shapes: tuple[int, ...], **attributes: Attribute) -> Operation:
    operands = tuple(Operand(shape=shape, dtype="float32") for shape in shapes)
    return Operation(operator=f"aten::{name}", operands=operands, attributes=attributes)


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (operation("mm", (2, 3), (3, 5)), (1, 2, 5, 3, 1)),
        (operation("addmm", (5,), (2, 3), (3, 5)), (1, 2, 5, 3, 1)),
        (operation("bmm", (7, 2, 3), (7, 3, 5)), (7, 2, 5, 3, 1)),
        (operation("matmul", (7, 2, 3), (3, 5)), (1, 14, 5, 3, 1)),
        (operation("matmul", (2, 3), (7, 3, 5)), (7, 2, 5, 3, 1)),
        (operation("matmul", (4, 1, 2, 3), (7, 3, 5)), (28, 2, 5, 3, 1)),
        (operation("linear", (7, 2, 3), (5, 3)), (1, 14, 5, 3, 1)),
        (operation("conv2d", (2, 4, 9, 9), (6, 4, 3, 3), stride=2, padding=1), (1, 50, 6, 36, 9)),
        (operation("convolution", (2, 4, 9, 9), (8, 1, 3, 3), groups=4), (4, 98, 2, 9, 9)),
    ],
)
def test_sizes(made: Operation, expected: tuple[int, ...]):
    found = products([made])
    assert found is not None
    assert [found.batch[0], found.m[0], found.n[0], found.k[0], found.positions[0]] == list(expected)


@pytest.mark.parametrize(
    "made",
    [
        operation("relu", (2, 3)),
        operation("mm", (3,), (3, 5)),
        operation("matmul", (2, 2, 3), (7, 3, 5)),
        operation("convolution", (2, 4, 9, 9), (4, 6, 3, 3), transposed=True),
    ],
)
def test_what_is_no_product_that_is_known(made: Operation):
    assert products([made]) is None


def test_a_wave_more_takes_as_long_as_a_whole_one():
    full, more = (products([operation("mm", (128 * 80, 64), (64, 128))]),
                  products([operation("mm", (128 * 80 + 1, 64), (64, 128))]))  # fmt: skip
    assert full is not None and more is not None
    tile = TILES.index((128, 128))
    one, blocks = tile_seconds(full, device("d", multiprocessors=80), "float32")
    two, _ = tile_seconds(more, device("d", multiprocessors=80), "float32")
    assert blocks[0, tile] == 80
    assert np.isclose(two[0, tile], 2 * one[0, tile])
