"""CSV files of which the reader says what their columns mean."""

from __future__ import annotations

from pathlib import Path

import pytest

from daceml.errors import MeasurementFileError
from daceml.operations.database.importers.csv_table import Columns, import_csv
from daceml.operations.database.records import Environment, Operand, Operation
from tests.support.golden import raises

WORDS = [
    "operator=aten::bmm",
    "device=gpu",
    "time=us",
    "unit=us",
    "shapes=B,M,N;B,N,4",
    "attribute.beta=b",
]


def table(folder: Path, *lines: str) -> Path:
    path = folder / "rows.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


def test_columns_and_values_of_every_row_become_operations(tmp_path: Path):
    path = table(
        tmp_path, "gpu,us,B,M,N,b", "T4,20,2,3,5,1", "T4,30,2,3,5,1", "T4,-1,2,3,5,1", "T4,7,2,0,5,1"
    )
    found = import_csv(path, Columns.parse(WORDS), date="2026-11-20", licence="CC0-1.0")
    (entry,) = found.entries
    operands = (Operand(shape=(2, 3, 5), dtype="float32"), Operand(shape=(2, 5, 4), dtype="float32"))
    assert entry.operation == Operation(operator="aten::bmm", operands=operands, attributes={"beta": 1})
    assert entry.environment == Environment(device="T4")
    assert entry.duration.median_s == pytest.approx(25e-6) and entry.duration.samples == 2
    assert (entry.source, entry.licence, list(found.malformed)) == ("rows.csv", "CC0-1.0", [3, 4])


def test_one_column_may_have_all_shapes(tmp_path: Path):
    path = table(tmp_path, "name,dims,seconds", "aten::mm,2x3;3x4,1")
    words = ["operator=name", "device=T4", "time=seconds", "unit=s", "shapes=dims"]
    (entry,) = import_csv(path, Columns.parse(words), date="2026-11-20", licence="MIT").entries
    assert [one.shape for one in entry.operation.operands] == [(2, 3), (3, 4)]


def test_what_is_missing_or_unknown_is_named(tmp_path: Path):
    with raises(MeasurementFileError, "shapes", "colour", "fortnights"):
        Columns.parse(["operator=a", "device=b", "time=c", "colour=d", "unit=fortnights"])
    with raises(MeasurementFileError, "LICENSE"):
        import_csv(table(tmp_path, "gpu", "T4"), Columns.parse(WORDS), date="2026-11-20")
