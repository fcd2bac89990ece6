"""`daceml db`: rows of others, into a database of operations."""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from daceml.cli import options
from daceml.cli.output_files import check_targets
from daceml.cli.work import working
from daceml.errors import MeasurementFileError
from daceml.runtime.progress import publish

if TYPE_CHECKING:
    from daceml.operations.database.importers.table import Imported

database = typer.Typer(help="Databases of operations.", no_args_is_help=True)


@database.callback()
def _commands() -> None:  # pyright: ignore[reportUnusedFunction]
    """Databases of operations."""


@database.command("import")
def import_tables(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE...",
            help="tables of operations: .csv, .csv.gz, .parquet, .log, .txt, .jsonl",
        ),
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="the database, created if missing")
    ] = Path("operations.db"),
    column: Annotated[
        list[str] | None,
        typer.Option(
            "--column",
            metavar="MEANING=COLUMN",
            help="what a column of a CSV file means, or a value of all rows; repeatable",
        ),
    ] = None,
    collective: Annotated[
        str, typer.Option("--collective", metavar="NAME", help="collective that nccl-tests measured")
    ] = "all_reduce",
    licence: Annotated[
        str | None,
        typer.Option("--license", metavar="SPDX", help="license of a CSV file; default: its LICENSE file's"),
    ] = None,
    date: Annotated[
        str | None, typer.Option("--date", metavar="DATE", help="date of all rows; default: today")
    ] = None,
    as_json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """Add measurements of others to a database of operations.

    The command reads operator tables of NeuSight (.csv, .csv.gz), GEMM and NCCL tables of aiconfigurator
    (.parquet), output of nccl-tests (.log, .txt), exports of daceml (.jsonl), and any CSV file with --column.
    Its MEANING is operator, device, time, shapes (B,M,N;B,N,K), dtype, unit (s, ms, us), mode or
    attribute.NAME. A text that names no column is the value of every row.
    """
    from daceml.operations.database.json_lines import read_json_lines
    from daceml.operations.database.store import OpDatabase

    day = date or datetime.now(UTC).date().isoformat()
    check_targets([("--output", output)])
    with working(quiet=False):
        publish("reading the tables")
        tables = {
            file: None if file.suffix == ".jsonl" else _read(file, day, column or (), licence, collective)
            for file in files
        }
    told: dict[str, object] = {}
    with OpDatabase(output) as rows:
        for file, table in tables.items():
            with working(quiet=False):
                publish(f"adding {file.name}")
                written = rows.add_all(read_json_lines(file) if table is None else table.entries)
            told[str(file)] = asdict(written) | ({} if table is None else {"malformed": len(table.malformed)})
            if not as_json:
                report = "" if table is None else f": {table.report()}"
                counts = f"{written.added} added, {written.replaced} replaced, {written.kept} kept"
                typer.echo(f"{file}{report}\n  {counts}")
    typer.echo(json.dumps({"output": str(output), "files": told}, indent=2) if as_json else str(output))


def _read(
    file: Path, day: str, column: list[str] | tuple[str, ...], licence: str | None, collective: str
) -> Imported:
    """By what a file has: its ending, and the names of its columns."""
    from daceml.operations.database.importers.aiconfigurator import import_gemm, import_nccl
    from daceml.operations.database.importers.csv_table import Columns, csv_rows, import_csv
    from daceml.operations.database.importers.nccl_tests import import_nccl_tests
    from daceml.operations.database.importers.neusight import NEEDED, import_neusight

    kind = Path(file.name.removesuffix(".gz")).suffix.lower()
    if kind == ".parquet":
        return (import_nccl if "nccl" in file.name else import_gemm)(file, date=day)
    if kind in (".log", ".txt"):
        return import_nccl_tests(file, collective=collective, date=day)
    if kind != ".csv":
        raise MeasurementFileError(
            "this file is of no kind that can be imported",
            where=str(file),
            why=f"its name ends in {kind or 'nothing'}",
            fix="give .csv, .csv.gz, .parquet, .log, .txt or .jsonl",
        )
    if column:
        return import_csv(file, Columns.parse(column), date=day, licence=licence)
    with csv_rows(file) as rows:
        names = list(rows.fieldnames or ())
    if set(names) >= NEEDED:
        return import_neusight(file, date=day)
    raise MeasurementFileError(
        "it is not known what the columns of this table mean",
        where=str(file),
        why=f"it has {', '.join(names) or 'no line of names'}",
        fix="say so: --column operator=aten::mm --column shapes='M,K;K,N' --column time=latency"
        " --column unit=ms --column device=gpu",
    )
