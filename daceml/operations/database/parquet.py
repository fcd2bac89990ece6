"""Export and import as Parquet, for data frames; with the extra `db`.

pyarrow, not polars: it writes lot by lot, and hands out the metadata by which a file is known as one of ours.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from daceml.errors import EntryError, EnvironmentProblem
from daceml.operations.database.canonical import json_text
from daceml.operations.database.exchange import (
    FORMAT,
    VERSION,
    check_version,
    entry_of,
    entry_record,
    refuse_export,
    written_aside,
)
from daceml.operations.database.records import Entry
from daceml.operations.database.store import OpDatabase, Written

_LOT = 20_000
_KEY = b"daceml"
_TEXTS = ("mode", "provenance", "source", "licence", "date")
_REALS = ("median_s", "mad_s", "p10_s", "p90_s")


def load_pyarrow() -> tuple[Any, Any]:
    """`pyarrow` and `pyarrow.parquet`.

    Raises:
        EnvironmentProblem: they are not installed.
    """
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise EnvironmentProblem(
            "Parquet needs pyarrow, which is not installed",
            why=str(error),
            fix="pip install 'daceml[db]', or exchange rows as JSON lines, which needs nothing",
        ) from error
    return pyarrow, parquet


def export_parquet(database: OpDatabase, path: str | Path) -> int:
    """Write every row, by key, and return how many; the file is there once all of it is.

    Raises:
        EnvironmentProblem: pyarrow is not installed.
        DatabaseAccessError: it cannot be written.
        DatabaseDamageError: the database is damaged.
    """
    arrow, parquet = load_pyarrow()
    table_schema = _schema(arrow)
    rows, entries = 0, database.entries()
    with (
        written_aside(Path(path)) as aside,
        parquet.ParquetWriter(aside, table_schema, compression="zstd", write_page_checksum=True) as writer,
    ):
        while lot := [_columns(entry) for entry in islice(entries, _LOT)]:
            writer.write_table(arrow.Table.from_pylist(lot, schema=table_schema))
            rows += len(lot)
    return rows


def import_parquet(database: OpDatabase, path: str | Path) -> Written:
    """Add every row of an export, or none.

    Raises:
        EnvironmentProblem: pyarrow is not installed.
        MeasurementFileError: it is no export, of a newer daceml, or damaged.
        DatabaseAccessError, DatabaseDamageError: the database cannot be written.
    """
    return database.add_all(read_parquet(Path(path)), rows_per_commit=None)


def read_parquet(path: Path) -> Iterator[Entry]:
    """The rows of an export.

    Raises:
        EnvironmentProblem: pyarrow is not installed.
        MeasurementFileError: it is no export, of a newer daceml, or damaged.
    """
    arrow, parquet = load_pyarrow()
    row = 0
    try:
        with parquet.ParquetFile(path, page_checksum_verification=True) as file:
            _check_schema(path, file.schema_arrow, _schema(arrow))
            for lot in file.iter_batches(_LOT):
                for record in lot.to_pylist():
                    row += 1
                    yield _entry(record)
    except (arrow.ArrowException, OSError) as error:
        raise refuse_export(path, str(error)) from error
    except (EntryError, ValueError, TypeError, KeyError) as error:
        why = f"{error.what}; {error.why}" if isinstance(error, EntryError) else str(error)
        raise refuse_export(path, f"row {row}: {why}") from error


def _schema(arrow: Any) -> Any:
    text = arrow.string()
    return arrow.schema(
        [
            *((name, text) for name in ("operator", "direction", "kernel")),
            ("dtypes", arrow.list_(text)),
            ("shapes", arrow.list_(arrow.list_(arrow.int64()))),
            # names or strides, and values of any type: no column has either, so these are JSON
            ("layouts", arrow.list_(text)),
            ("attributes", text),
            *((name, text) for name in ("device", "fingerprint", "software", *_TEXTS)),
            *((name, arrow.float64()) for name in _REALS),
            ("samples", arrow.int64()),
        ],
        metadata={_KEY: json_text({"format": FORMAT, "version": VERSION}).encode()},
    )


def _check_schema(path: Path, found: Any, expected: Any) -> None:
    try:
        header = json.loads((found.metadata or {})[_KEY])
        ours, version = header["format"] == FORMAT, header["version"]
    except (KeyError, ValueError, TypeError):
        ours, version = False, None
    if not ours:
        raise refuse_export(path, "its metadata does not say that it is one")
    check_version(path, version)
    if not found.equals(expected):
        raise refuse_export(path, f"it has the columns {found.names}, or other types")


def _columns(entry: Entry) -> dict[str, Any]:
    record = entry_record(entry)
    operation, environment = record.pop("operation"), record.pop("environment")
    operands = operation.pop("operands")
    return {
        **record,
        **operation,
        **environment,
        "dtypes": [operand["dtype"] for operand in operands],
        "shapes": [operand["shape"] for operand in operands],
        "layouts": [json_text(operand["layout"]) for operand in operands],
        "attributes": json_text(operation["attributes"]),
        "software": json_text(environment["software"]),
    }


def _entry(columns: dict[str, Any]) -> Entry:
    operands = [
        {"shape": shape, "dtype": dtype, "layout": json.loads(layout)}
        for shape, dtype, layout in zip(
            columns.pop("shapes"), columns.pop("dtypes"), columns.pop("layouts"), strict=True
        )
    ]
    operation = {name: columns.pop(name) for name in ("operator", "direction", "kernel")}
    operation |= {"operands": operands, "attributes": json.loads(columns.pop("attributes"))}
    environment = {name: columns.pop(name) for name in ("device", "fingerprint")}
    environment["software"] = json.loads(columns.pop("software"))
    return entry_of({"operation": operation, "environment": environment, **columns})
