"""Chunks of rows: as a processor has them, and enough blocks for a device."""

from __future__ import annotations

import math

import pytest

from daceml.transformations.local.row_chunks import cut, device_chunks, groups_of


@pytest.mark.parametrize(
    ("extents", "counts"),
    [((1000,), [(50,)]), ((1024,), [(64,)]), ((5003,), [(64,)]), ((32, 128), [(32,), (2,)])],
)
def test_a_processor_has_one_number_for_a_chunk(extents: tuple[int, ...], counts: list[tuple[int, ...]]):
    assert cut(extents) == counts


@pytest.mark.parametrize(("columns", "blocks"), [(40, 4), (256, 4), (768, 1), (4096, 1)])
@pytest.mark.parametrize("rows", [2**17, 99_991])
def test_few_columns_of_many_rows_fill_a_device(columns: int, blocks: int, rows: int):
    counts = cut([rows], device_chunks([columns]))
    assert not isinstance(counts, str)
    (parts,) = counts
    chunks = math.prod(parts)
    # two blocks for each of 132 multiprocessors, where equal chunks may be half as many
    assert chunks // blocks >= 132 and rows // chunks >= 15
    assert all(part <= 65 for part in parts) and groups_of(parts) == 1
    assert len(parts) > 1


def test_what_shares_take_stays_small():
    for rows in (128, 1000, 2048, 70_001):
        counts = cut([rows], device_chunks([64]))
        assert not isinstance(counts, str)
        assert math.prod(counts[0]) * 15 <= rows * 1.1
    assert cut([127], device_chunks([64])) == "127 rows are too few to go through in chunks"


def test_leading_dimensions_count_chunks():
    counts = cut([8, 3136], device_chunks([64]))
    assert counts == [(8,), (14, 14)]
    assert groups_of((8, 14, 14)) == 2  # 112 groups of 14
