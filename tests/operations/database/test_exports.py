"""Exports: what comes back is what was there, and half a file is none."""

from __future__ import annotations

import json
import os
import sqlite3
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from daceml.errors import (
    DatabaseAccessError,
    DatabaseDamageError,
    DatabaseFileError,
    EnvironmentProblem,
    MeasurementFileError,
)
from daceml.operations.database.json_lines import export_json_lines, import_json_lines
from daceml.operations.database.parquet import export_parquet, import_parquet
from daceml.operations.database.recovery import recover
from daceml.operations.database.store import OpDatabase, Written
from tests.operations.database.entries import EVERYTHING, VARIED, entry, numbered
from tests.support.golden import raises
from tests.support.sampling import sampled

Export = Callable[[OpDatabase, Path], int]
Import = Callable[[OpDatabase, Path], Written]
PAIRS = [
    pytest.param(export_json_lines, import_json_lines, id="json lines"),
    pytest.param(export_parquet, import_parquet, id="parquet"),
]


@pytest.fixture(autouse=True)
def _needs_pyarrow(request: pytest.FixtureRequest):
    if "parquet" in request.node.name and "without" not in request.node.name:
        pytest.importorskip("pyarrow", reason="the extra db is not installed")


@pytest.fixture
def filled(tmp_path: Path) -> Path:
    path = tmp_path / "ops.db"
    with OpDatabase(path) as database:
        database.add_all(VARIED)
    return path


@pytest.mark.parametrize(("export", "import_"), PAIRS)
def test_every_row_comes_back_as_it_was(filled: Path, tmp_path: Path, export: Export, import_: Import):
    file = tmp_path / "export"
    with OpDatabase(filled) as database, OpDatabase(tmp_path / "other.db") as other:
        assert export(database, file) == 4
        assert import_(other, file) == Written(added=4)
        assert list(other.entries()) == list(database.entries())
        (back,) = other.find(EVERYTHING.operation)
        assert repr(back.duration) == repr(EVERYTHING.duration), "to the last bit"
        assert import_(other, file) == Written(replaced=4), "once more changes nothing"
        assert list(other.entries()) == list(database.entries())


@pytest.mark.parametrize(("export", "import_"), PAIRS)
def test_an_empty_database_has_an_empty_export(tmp_path: Path, export: Export, import_: Import):
    with OpDatabase(tmp_path / "ops.db") as database:
        assert export(database, tmp_path / "export") == 0
        assert import_(database, tmp_path / "export") == Written()


@pytest.mark.parametrize(("export", "import_"), PAIRS)
def test_a_file_that_is_cut_anywhere_is_refused_and_nothing_of_it_is_imported(
    filled: Path, tmp_path: Path, export: Export, import_: Import
):
    file = tmp_path / "export"
    with OpDatabase(filled) as database:
        export(database, file)
    data = file.read_bytes()
    with OpDatabase(tmp_path / "other.db") as other:
        for length in range(0, len(data) - 1, max(len(data) // 40, 1)):
            file.write_bytes(data[:length])
            with pytest.raises(MeasurementFileError) as refusal:
                import_(other, file)
            assert refusal.value.where == str(file)
        assert len(other) == 0


@pytest.mark.parametrize(("export", "import_"), PAIRS)
def test_a_file_that_is_not_there_is_refused(tmp_path: Path, export: Export, import_: Import):
    with OpDatabase(tmp_path / "ops.db") as database:
        with pytest.raises(MeasurementFileError):
            import_(database, tmp_path / "none")
        with raises(DatabaseAccessError, tmp_path / "none" / "export", exact=False):  # the system says why
            export(database, tmp_path / "none" / "export")


@pytest.mark.parametrize(("export", "import_"), PAIRS)
def test_an_export_that_fails_leaves_the_one_that_was_there(
    filled: Path, tmp_path: Path, export: Export, import_: Import, monkeypatch: pytest.MonkeyPatch
):
    file = tmp_path / "export"
    file.write_text("before")

    def broken(*_: Any, **__: Any) -> Any:
        yield entry()
        raise OSError("no room")

    with OpDatabase(filled) as database:
        monkeypatch.setattr(database, "entries", broken)
        with raises(DatabaseAccessError, file, "no room"):
            export(database, file)
    assert file.read_text() == "before"
    assert sorted(os.listdir(tmp_path)) == ["export", "ops.db"]


@pytest.mark.parametrize(
    ("change", "facts"),
    [
        (lambda lines: lines[1:], ["first line"]),
        (lambda lines: ['{"format":"x","version":1}', *lines[1:]], ["first line"]),
        (lambda lines: [lines[0], "x", *lines[1:]], ["line 2", "JSON", "char 0"]),
        (lambda lines: [lines[0], "[" * 100_000, *lines[1:]], ["line 2", "JSON", "recursion"]),
        (lambda lines: [lines[0], "7", *lines[1:]], ["line 2", "median_s", "operation"]),
        (lambda lines: [*lines[:2], *lines[3:]], ["3 rows", "4"]),
        (lambda lines: [*lines, lines[1]], ["line 7"]),
        (
            lambda lines: [lines[0], lines[1].replace('"median_s":', '"median_s":-'), *lines[2:]],
            ["line 2", "median_s", "-0.0"],
        ),
    ],
)
def test_a_line_that_means_nothing_is_named(
    filled: Path, tmp_path: Path, change: Callable[[list[str]], list[str]], facts: list[str]
):
    file = tmp_path / "export"
    with OpDatabase(filled) as database:
        export_json_lines(database, file)
        file.write_text("\n".join(change(file.read_text().splitlines())) + "\n")
        # Python says what is no JSON
        with raises(MeasurementFileError, file, *facts, exact="JSON" not in facts):
            import_json_lines(database, file)


def test_a_figure_that_was_changed_is_noticed(filled: Path, tmp_path: Path):
    file = tmp_path / "export"
    with OpDatabase(filled) as database:
        export_json_lines(database, file)
        file.write_text(file.read_text().replace('"median_s":0.001', '"median_s":0.003', 1))
        with raises(MeasurementFileError, file, "digest"):
            import_json_lines(database, file)
        assert not [e for e in database.entries() if e.duration.median_s == 0.003]


@pytest.mark.parametrize("step", sampled([97, 293], 293))
def test_damaged_values_of_a_parquet_file_are_noticed(filled: Path, tmp_path: Path, step: int):
    file = tmp_path / "export"
    with OpDatabase(filled) as database:
        database.add_all(numbered(0, 300))
        export_parquet(database, file)
        data = file.read_bytes()
        refused = 0
        for place in range(100, len(data) * 2 // 3, step):
            file.write_bytes(data[:place] + bytes([data[place] ^ 0x41]) + data[place + 1 :])
            whole = list(database.entries())
            try:
                import_parquet(database, file)
            except MeasurementFileError:
                refused += 1
            assert list(database.entries()) == whole
    assert refused > 1000 / step


def test_an_export_of_a_newer_daceml_is_refused(tmp_path: Path):
    file = tmp_path / "export"
    with OpDatabase(tmp_path / "ops.db") as database:
        export_json_lines(database, file)
        file.write_text(file.read_text().replace('"version":1', '"version":2'))
        with raises(MeasurementFileError, file, "version 2"):
            import_json_lines(database, file)


def test_a_parquet_file_of_somebody_else_is_refused(tmp_path: Path):
    import pyarrow as arrow
    from pyarrow import parquet

    file = tmp_path / "export"
    ours = json.dumps({"format": "daceml operation database", "version": 1})
    newer = json.dumps({"format": "daceml operation database", "version": 2})
    with OpDatabase(tmp_path / "ops.db") as database:
        for metadata, fact in (
            ({}, "metadata"),
            ({"daceml": "x"}, "metadata"),
            ({"daceml": newer}, "version 2"),
            ({"daceml": ours}, "['a']"),
        ):
            parquet.write_table(arrow.table({"a": [1]}).replace_schema_metadata(metadata), file)
            with raises(MeasurementFileError, file, fact):
                import_parquet(database, file)


def test_a_parquet_export_is_a_table_that_others_can_read(filled: Path, tmp_path: Path):
    from pyarrow import parquet

    with OpDatabase(filled) as database:
        export_parquet(database, tmp_path / "export")
    table = parquet.read_table(tmp_path / "export")
    (row,) = [row for row in table.to_pylist() if row["device"] == "H100"]
    assert row["shapes"] == [[8, 4], [4, 2]] and row["dtypes"] == ["float16"] * 2
    assert row["operator"] == "aten::mm" and row["licence"] == "BSD-3-Clause"


def test_without_pyarrow_the_command_that_installs_it_is_named(
    filled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with OpDatabase(filled) as database:
        for call in (export_parquet, import_parquet):
            # Python says why
            with raises(EnvironmentProblem, "pyarrow", "pip install 'daceml[db]'", exact=False):
                call(database, tmp_path / "export")
    assert not (tmp_path / "export").exists()


@pytest.mark.parametrize(("export", "import_"), PAIRS)
def test_a_damaged_database_is_made_again_from_its_export_and_kept(
    filled: Path, tmp_path: Path, export: Export, import_: Import
):
    with OpDatabase(filled) as database:
        database.add_all(numbered(0, 200))
        export(database, tmp_path / "export")
        whole = list(database.entries())
    data = bytearray(filled.read_bytes())
    data[4096:8192] = bytes(4096)
    filled.write_bytes(data)
    done = recover(filled, tmp_path / "export")
    assert done.rows == len(whole)
    assert done.damaged is not None and done.damaged.read_bytes() == data
    with OpDatabase(filled, create=False, verify=True) as database:
        assert list(database.entries()) == whole
    assert sorted(os.listdir(tmp_path)) == ["export", "ops.db", "ops.db.damaged-1"]


def test_the_log_of_a_damaged_file_is_put_aside_with_it(filled: Path, tmp_path: Path):
    with OpDatabase(filled) as database:
        export_json_lines(database, tmp_path / "export")
    filled.write_bytes(b"damaged")
    filled.with_name("ops.db-wal").write_bytes(b"what SQLite would write into the new file")
    recover(filled, tmp_path / "export")
    with OpDatabase(filled) as database:
        assert database.verify() == 4
    assert (tmp_path / "ops.db.damaged-1-wal").read_bytes() == b"what SQLite would write into the new file"


def test_a_second_damaged_file_does_not_take_the_place_of_the_first(filled: Path, tmp_path: Path):
    with OpDatabase(filled) as database:
        export_json_lines(database, tmp_path / "export")
    for content in (b"first", b"second"):
        filled.write_bytes(content)
        recover(filled, tmp_path / "export")
    assert (tmp_path / "ops.db.damaged-1").read_bytes() == b"first"
    assert (tmp_path / "ops.db.damaged-2").read_bytes() == b"second"


def test_a_healthy_database_is_not_replaced(filled: Path, tmp_path: Path):
    with OpDatabase(filled) as database:
        export_json_lines(database, tmp_path / "export")
        database.add_all(numbered(0, 3))
    with raises(DatabaseAccessError, filled, "damaged", "export"):
        recover(filled, tmp_path / "export")
    with OpDatabase(filled) as database:
        assert len(database) == 7


def test_nothing_is_put_aside_for_an_export_that_cannot_be_read(filled: Path, tmp_path: Path):
    filled.write_bytes(b"damaged")
    (tmp_path / "export").write_text("no export")
    with pytest.raises(MeasurementFileError):
        recover(filled, tmp_path / "export")
    assert filled.read_bytes() == b"damaged"
    assert sorted(os.listdir(tmp_path)) == ["export", "ops.db"]


def test_a_lost_database_is_made_again(filled: Path, tmp_path: Path):
    with OpDatabase(filled) as database:
        export_json_lines(database, tmp_path / "export")
    done = recover(tmp_path / "lost.db", tmp_path / "export")
    assert (done.rows, done.damaged) == (4, None)


def test_another_programs_file_is_not_put_aside(filled: Path, tmp_path: Path):
    with OpDatabase(filled) as database:
        export_json_lines(database, tmp_path / "export")
    other = tmp_path / "theirs.db"
    plain = sqlite3.connect(other)
    plain.execute("CREATE TABLE x (y)")
    plain.close()
    with raises(DatabaseFileError, other, "application_id", "0x0") as refusal:
        recover(other, tmp_path / "export")
    assert not isinstance(refusal.value, DatabaseDamageError)
