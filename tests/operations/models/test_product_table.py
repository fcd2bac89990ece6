"""Products between measured sizes: exact where they were measured, powers of a size in between."""

from __future__ import annotations

from dataclasses import replace

import pytest

from daceml.errors import EstimationError
from daceml.operations.database.records import Duration, Entry, Environment, Operand, Operation
from daceml.operations.models.product_table import ProductTable
from tests.support.golden import raises


def linear(m: int, n: int, k: int) -> Operation:
    shapes = ((m, k), (n, k))
    return Operation(
        operator="aten::linear", operands=tuple(Operand(shape=shape, dtype="bfloat16") for shape in shapes)
    )


def entry(m: int, n: int, k: int, seconds: float) -> Entry:
    return Entry(
        operation=linear(m, n, k),
        environment=Environment(device="a test"),
        duration=Duration(median_s=seconds, mode="graph"),
        provenance="imported",
        source="a test",
        licence="none",
        date="2026-01-01",
    )


@pytest.fixture
def table() -> ProductTable:
    # as long as its arithmetic: a microsecond for 64 x 64 x 64
    sizes = (64, 128, 512)
    return ProductTable.of(
        [entry(m, n, k, m * n * k / 64**3 * 1e-6) for m in sizes for n in sizes for k in sizes]
    )


def test_what_was_measured_is_told_as_it_is(table: ProductTable):
    assert table.duration_us(linear(128, 64, 512)) == pytest.approx(16)


def test_between_sizes_a_product_grows_as_a_power(table: ProductTable):
    assert table.duration_us(linear(96, 256, 300)) == pytest.approx(96 * 256 * 300 / 64**3)


def test_beyond_the_grid_and_of_other_operators_it_knows_nothing(table: ProductTable):
    assert table.duration_us(linear(1024, 64, 64)) is None
    assert table.duration_us(linear(32, 64, 64)) is None
    heads = tuple(Operand(shape=(2, 64, 64), dtype="bfloat16") for _ in range(2))
    assert table.duration_us(Operation(operator="aten::bmm", operands=heads)) is None
    assert table.duration_us(Operation(operator="aten::gelu", operands=heads[:1])) is None


def test_a_hole_in_the_grid_is_no_measurement():
    holes = ProductTable.of([entry(64, 64, 64, 1e-6), entry(128, 128, 64, 4e-6)])
    assert holes.duration_us(linear(96, 96, 64)) is None


def test_a_table_without_products_is_refused():
    with raises(EstimationError, "aten::mm", "aten::addmm", "aten::linear"):
        ProductTable.of([])


def test_other_types_are_not_of_the_table(table: ProductTable):
    known = linear(64, 64, 64)
    other = replace(known, operands=tuple(replace(one, dtype="float32") for one in known.operands))
    assert table.duration_us(known) is not None
    assert table.duration_us(other) is None


def test_several_devices_or_types_are_no_table():
    one = entry(64, 64, 64, 1e-6)
    with raises(EstimationError, "a test", "another"):
        ProductTable.of([one, replace(one, environment=Environment(device="another"))])
