"""Chunks of rows: as a processor has them, and enough blocks for a device."""

from __future__ import annotations

import pytest

from daceml.transformations.local.row_chunks import cut, device_chunks, device_threads
from tests.support.golden import golden


@pytest.mark.parametrize(
    ("extents", "counts"),
    [((1000,), [50]), ((1024,), [64]), ((5003,), [64]), ((32, 128), [32, 2])],
)
def test_a_processor_has_as_many_chunks_as_it_may_have_threads(extents: tuple[int, ...], counts: list[int]):
    assert cut(extents) == counts


@pytest.mark.parametrize(("columns", "blocks"), [(40, 4), (256, 4), (768, 1), (4096, 1)])
@pytest.mark.parametrize("rows", [2**17, 99_991])
def test_few_columns_of_many_rows_fill_a_device(columns: int, blocks: int, rows: int):
    counts = cut([rows], device_chunks([columns]))
    assert not isinstance(counts, str)
    (chunks,) = counts
    # two blocks for each of 132 multiprocessors, where equal chunks may be half as many
    assert chunks // blocks >= 132 and rows // chunks >= 15


def test_what_shares_take_stays_small():
    for rows in (128, 1000, 2048, 70_001):
        counts = cut([rows], device_chunks([64]))
        assert not isinstance(counts, str)
        assert counts[0] * 15 <= rows * 1.1
    few = cut([127], device_chunks([64]))
    assert few == golden()
    assert "127 rows" in few


def test_leading_dimensions_count_chunks():
    assert cut([8, 3136], device_chunks([64])) == [8, 196]


@pytest.mark.parametrize(("columns", "threads"), [((4096,), 32), ((768,), 32), ((64,), 128), ((2, 16), 128)])
def test_few_columns_have_more_threads_each(columns: tuple[int, ...], threads: int):
    assert device_threads(264, columns) == threads
