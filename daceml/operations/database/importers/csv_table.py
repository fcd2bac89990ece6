"""A CSV file of anybody, of which the reader says what each column means."""

from __future__ import annotations

import csv
import gzip
import re
import zlib
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self, cast, get_args

from daceml.errors import MeasurementFileError
from daceml.operations.database.importers.table import MS, US, Imported, Measurement, imported, positive, size
from daceml.operations.database.records import Attribute, Environment, Mode, Operand, Operation

Row = dict[str, str]
_UNITS = {"s": 1.0, "ms": MS, "us": US}
_NEEDED = ("operator", "device", "time", "shapes")
_MEANINGS = (*_NEEDED, "dtype", "unit", "mode")
_ATTRIBUTE = "attribute."


@dataclass(frozen=True, kw_only=True)
class Columns:
    """What the columns of a table mean. A text that is no column stands for itself, in every row.

    Attributes:
        time: of one execution, in `unit`s.
        shapes: of the operands, as names of columns or numbers: "B,M,N;B,N,K"; or one column, with "8x3x224".
        attributes: name -> column.
    """

    operator: str
    device: str
    time: str
    shapes: str
    dtype: str = "float32"
    unit: str = "ms"
    mode: str = "eager"
    attributes: Mapping[str, str] = field(default_factory=dict[str, str])

    @classmethod
    def parse(cls, words: Sequence[str]) -> Self:
        """From "MEANING=COLUMN" each.

        Raises:
            MeasurementFileError: a meaning is not known, or one that is needed is not given.
        """
        given = {name: value for name, _, value in (word.partition("=") for word in words)}
        named = [name for name in given if name.startswith(_ATTRIBUTE)]
        attributes = {name.removeprefix(_ATTRIBUTE): given.pop(name) for name in named}
        unknown = [name for name in given if name not in _MEANINGS]
        missing = [name for name in _NEEDED if not given.get(name)]
        choices = {"unit": tuple(_UNITS), "mode": get_args(Mode)}
        odd = [given[name] for name, known in choices.items() if name in given and given[name] not in known]
        if unknown or missing or odd:
            whys = [f"{', '.join(unknown + odd)}: not known"] if unknown or odd else []
            whys += [f"{', '.join(missing)}: not given"] if missing else []
            raise MeasurementFileError(
                "these columns do not describe a table",
                why="; ".join(whys),
                fix=f"give MEANING=COLUMN: {', '.join(_MEANINGS)} (s, ms, us; {', '.join(get_args(Mode))}),"
                f" {_ATTRIBUTE}NAME",
            )
        return cls(**given, attributes=attributes)

    def understand(self, row: Row) -> Measurement:
        """What a row measured.

        Raises:
            ValueError: a figure is none.
        """

        def said(text: str) -> str:
            return row.get(text, text)

        dtype = said(self.dtype)
        shapes = [
            tuple(size(one) for name in operand.split(",") for one in re.split(r"[x, ]+", said(name.strip())))
            for part in self.shapes.split(";")
            for operand in said(part.strip()).split(";")
        ]
        return Measurement(
            operation=Operation(
                operator=said(self.operator),
                operands=tuple(Operand(shape=shape, dtype=dtype) for shape in shapes),
                attributes={name: _value(said(column)) for name, column in self.attributes.items()},
            ),
            environment=Environment(device=said(self.device)),
            mode=cast("Mode", self.mode),
            seconds=positive(said(self.time)) * _UNITS[self.unit],
        )


def import_csv(path: str | Path, columns: Columns, *, date: str, licence: str | None = None) -> Imported:
    """Rows of a table.

    Args:
        path: of a .csv or .csv.gz file with a line of names.
        date: ISO 8601, of every row.
        licence: SPDX; None for that of the LICENSE in a folder around the file.
    Raises:
        MeasurementFileError: it cannot be read, has no licence, or no row means anything.
    """
    path = Path(path)
    with csv_rows(path) as rows:
        return imported(rows, columns.understand, path=path, date=date, licence=licence)


@contextmanager
def csv_rows(path: Path) -> Generator[csv.DictReader[str]]:
    """The rows of a file that may be compressed.

    Raises:
        MeasurementFileError: it cannot be read.
    """
    try:
        opened = gzip.open if path.suffix == ".gz" else open
        with opened(path, "rt", encoding="utf-8", newline="") as file:
            yield csv.DictReader(file)
    except (OSError, EOFError, zlib.error, UnicodeDecodeError, csv.Error) as error:
        raise MeasurementFileError(
            "this table cannot be read",
            where=str(path),
            why=f"{type(error).__name__}: {error}",
            fix="fetch it again",
        ) from error


def _value(text: str) -> Attribute:
    for number in (int, float):
        try:
            return number(text)
        except ValueError:
            continue
    return text
