"""Operator tables of NeuSight."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import pytest

from daceml.errors import EntryError, MeasurementFileError
from daceml.operations.database.importers.neusight import import_neusight
from daceml.operations.database.records import Duration, Entry, Environment, Operand, Operation
from tests.support.golden import golden, raises
from tests.support.neusight_tables import row, table

DATE = "2026-11-20"
PERMISSION = "Permission is hereby granted, free of charge, to any\nperson obtaining a\ncopy of this software"


def test_a_row_becomes_an_entry_with_all_that_is_known(tmp_path: Path):
    found = import_neusight(table(tmp_path, "B,M,N,K", row("bmm", 0.5, 2, 3, 4, 5)), date=DATE)
    assert found.entries == (
        Entry(
            operation=Operation(
                operator="aten::bmm",
                operands=(
                    Operand(shape=(2, 3, 4), dtype="float32"),
                    Operand(shape=(2, 4, 5), dtype="float32"),
                ),
            ),
            environment=Environment(
                device="Tesla T4", software={"torch": "2.1.0", "cuDNN": "8902", "CUDA": "121"}
            ),
            duration=Duration(median_s=0.5e-3, mode="eager"),
            provenance="imported",
            source="neusight/train/T.csv.gz",
            licence="MIT",
            date=DATE,
        ),
    )
    assert found.report() == golden()


@pytest.mark.parametrize(
    ("dims", "line", "operator", "shapes", "attributes"),
    [
        ("B,H", row("add", 1, 2, 3), "aten::add", [(2, 3), (2, 3)], {}),
        ("B,H", row("gelu", 1, 2, 3), "aten::gelu", [(2, 3)], {}),
        ("B,H", row("softmax", 1, 2, 3), "aten::softmax", [(2, 3)], {"dim": -1}),
        ("B,H", row("ln", 1, 2, 3), "aten::layer_norm", [(2, 3), (3,), (3,)], {}),
        ("B,M,N,K", row("linear", 1, 1, 6, 7, 8), "aten::linear", [(1, 6, 7), (8, 7)], {}),
        (
            "B,Input_Channel,Output_Channel,Kernel_Szie,Input_Size,Stride,Padding",
            row("conv", 1, 2, 3, 4, 5, 6, 1, 0),
            "aten::conv2d",
            [(2, 3, 6, 6), (4, 3, 5, 5)],
            {"stride": (1, 1), "padding": (0, 0)},
        ),
    ],
)
def test_every_operator_of_the_set(
    tmp_path: Path,
    dims: str,
    line: str,
    operator: str,
    shapes: list[tuple[int, ...]],
    attributes: dict[str, object],
):
    (found,) = import_neusight(table(tmp_path, dims, line), date=DATE).entries
    assert found.operation.operator == operator
    assert [o.shape for o in found.operation.operands] == shapes
    assert found.operation.attributes == attributes


def test_rows_that_mean_nothing_are_counted_and_named(tmp_path: Path):
    lines = [
        row("add", 1, 2, 3),
        row("add", "nan", 2, 3),
        row("add", -1, 2, 3),
        row("add", 1, 0, 3),
        row("add", 1, "x", 3),
        row("pow", 1, 2, 3),
        row("add", 1, 2),
        row("add", "1e999", 2, 3),
    ]
    found = import_neusight(table(tmp_path, "B,H", *lines), date=DATE)
    assert (found.rows, len(found.entries), sorted(found.malformed)) == (8, 1, [2, 3, 4, 5, 6, 7, 8])
    assert found.report() == golden()
    shown = found.report().splitlines()[1:]
    assert [f"row {n}: " in line for n, line in enumerate(shown[:5], 2)] == [True] * 5
    assert "nan" in shown[0] and "-1" in shown[1] and "2" in shown[5] and len(shown) == 6


def test_what_was_measured_twice_is_one_entry_with_the_median(tmp_path: Path):
    lines = [row("add", ms, 2, 3) for ms in (1, 2, 6)] + [row("add", 1, 3, 3)]
    found = import_neusight(table(tmp_path, "B,H", *lines), date=DATE)
    assert (len(found.entries), found.repeated) == (2, 2)
    assert found.entries[0].duration == Duration(median_s=2e-3, samples=3, mad_s=1e-3, mode="eager")


@pytest.mark.parametrize(
    ("content", "fact"),
    [
        (b"", "CUDA Version, CUDNN Version"),
        (gzip.compress(b"a,b\n1,2\n"), "CUDA Version, CUDNN Version"),
        (gzip.compress(b"OPName,Latency\n" * 1000)[:40], "EOFError"),
        (b"no gzip at all", "BadGzipFile"),
        (gzip.compress(b"\xff\xfe"), "UnicodeDecodeError"),
    ],
    ids=("empty", "other columns", "cut short", "not compressed", "not UTF-8"),
)
def test_a_file_that_is_no_such_table_is_refused(tmp_path: Path, content: bytes, fact: str):
    path = table(tmp_path, "B,H")
    path.write_bytes(content)
    with raises(MeasurementFileError, path, fact, exact="," in fact):  # Python says other reasons
        import_neusight(path, date=DATE)


def test_a_table_without_a_row_that_means_something_is_refused(tmp_path: Path):
    with raises(MeasurementFileError, tmp_path, "row 1", "KeyError: 'pow'"):
        import_neusight(table(tmp_path, "B,H", row("pow", 1, 2, 3)), date=DATE)
    with raises(MeasurementFileError, tmp_path, "row") as refusal:
        import_neusight(table(tmp_path, "B,H"), date=DATE)
    assert "row 1" not in str(refusal.value)


@pytest.mark.parametrize(
    ("text", "spdx"),
    [
        ("                 Apache License\n      Version 2.0, January 2004", "Apache-2.0"),
        (f"Copyright (c) 2024\n\n{PERMISSION}", "MIT"),
    ],
)
def test_the_licence_is_that_of_the_set(tmp_path: Path, text: str, spdx: str):
    path = table(tmp_path, "B,H", row("add", 1, 2, 3), licence=text)
    assert import_neusight(path, date=DATE).entries[0].licence == spdx


def test_measurements_without_a_known_licence_are_refused(tmp_path: Path):
    path = table(tmp_path, "B,H", row("add", 1, 2, 3), licence="All rights reserved.")
    with raises(MeasurementFileError, path, "LICENSE", "Apache", "MIT"):
        import_neusight(path, date=DATE)


def test_a_date_that_is_none_is_refused(tmp_path: Path):
    with raises(EntryError, "aten::add", "date", "'lately'", "ISO 8601"):
        import_neusight(table(tmp_path, "B,H", row("add", 1, 2, 3)), date="lately")


def test_tables_of_the_set_are_imported_whole():
    data = os.environ.get("DACEML_DATA")
    folder = Path(data or "") / "measurements" / "neusight" / "train"
    if data is None or not folder.is_dir():
        pytest.skip("DACEML_DATA has no measurements of NeuSight")
    # bmm is as linear, and three times as large
    tables = [path for path in sorted(folder.glob("*/p2.1.0/Tesla P4.csv.gz")) if "bmm" not in path.parts]
    assert len(tables) == 6
    for path in tables:
        found = import_neusight(path, date=DATE)
        assert not found.malformed
        assert found.rows == len(found.entries) + found.repeated
        assert {e.environment.device for e in found.entries} == {path.name.removesuffix(".csv.gz")}
        assert all(1e-6 < e.duration.median_s < 20 for e in found.entries), "milliseconds became seconds"
