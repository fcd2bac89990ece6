"""Entries as rows of the tables and back, with a digest by which damage is noticed."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from daceml.errors import EntryError
from daceml.operations.database.canonical import (
    attributes_record,
    digest,
    environment_of,
    environment_text,
    family_text,
    json_text,
    layout_record,
    operation_of,
    operation_text,
)
from daceml.operations.database.records import Duration, Entry, Operation
from daceml.operations.database.validation import check_entry, instant_us

# of `entries`, in the order of `EntryRow.values`
COLUMNS = (
    *("key", "operation", "environment", "mode", "provenance", "source", "licence", "date"),
    *("median_s", "samples", "mad_s", "p10_s", "p90_s", "checksum", "instant_us"),
)
# what a query has to select for `entry_of_row`
SELECTED = ", ".join(f"e.{name}" for name in COLUMNS) + ", o.text, v.text"


@dataclass(frozen=True, kw_only=True)
class OperationRow:
    """An operation in the tables `operations` and `operands`."""

    digest: bytes
    text: str
    values: tuple[Any, ...]
    operands: tuple[tuple[Any, ...], ...]


def key_of(operation: str, environment: str, entry: Entry) -> bytes:
    """By which a row is known: what was measured, where, how and by whom; not when, and not the figures.

    Args:
        operation, environment: their canonical texts.
    """
    measured = json_text([entry.duration.mode, entry.provenance, entry.source])
    return digest(operation, environment, measured)


def content_key(entry: Entry) -> str:
    """The key of an entry, in hexadecimal.

    Raises:
        EntryError: it is none that a database keeps.
    """
    check_entry(entry)
    return key_of(operation_text(entry.operation), environment_text(entry.environment), entry).hex()


def operation_row(operation: Operation) -> OperationRow:
    """What the tables hold of an operation."""
    text = operation_text(operation)
    name = digest(text)
    attributes = json_text(attributes_record(operation.attributes))
    family = digest(family_text(operation))
    return OperationRow(
        digest=name,
        text=text,
        values=(
            *(name, operation.operator, operation.direction, operation.kernel),
            *(attributes, text, family),
        ),
        operands=tuple(
            (name, position, o.dtype, json_text(list(o.shape)), _layout_text(o.layout))
            for position, o in enumerate(operation.operands)
        ),
    )


@lru_cache(maxsize=256)
def environment_row(text: str) -> tuple[Any, ...]:
    """What the table holds of an environment with this canonical text."""
    environment = environment_of(json.loads(text))
    software = json_text(dict(environment.software))
    return (digest(text), environment.device, environment.fingerprint, software, text)


def entry_values(entry: Entry, operation: OperationRow, environment: str) -> tuple[Any, ...]:
    """What the table `entries` holds of an entry, in the order of `COLUMNS`."""
    key = key_of(operation.text, environment, entry)
    d = entry.duration
    figures = (float(d.median_s), d.samples, *(_real(f) for f in (d.mad_s, d.p10_s, d.p90_s)))
    said = (d.mode, entry.provenance, entry.source, entry.licence, entry.date)
    return (
        *(key, operation.digest, environment_row(environment)[0], *said, *figures),
        *(_checksum(key, said, figures), instant_us(entry.date)),
    )


def entry_of_row(row: tuple[Any, ...]) -> Entry:
    """The entry of a row with the columns `SELECTED`.

    Raises:
        ValueError: the row is not as it was written.
    """
    fields = dict(zip(COLUMNS, row, strict=False))
    operation_part, environment_part = row[len(COLUMNS) :]
    said = tuple(fields[name] for name in ("mode", "provenance", "source", "licence", "date"))
    figures = tuple(fields[name] for name in ("median_s", "samples", "mad_s", "p10_s", "p90_s"))
    try:
        entry = Entry(
            operation=operation_of(json.loads(operation_part)),
            environment=environment_of(json.loads(environment_part)),
            duration=Duration(
                mode=fields["mode"],
                **{name: fields[name] for name in ("median_s", "samples", "mad_s", "p10_s", "p90_s")},
            ),
            provenance=fields["provenance"],
            source=fields["source"],
            licence=fields["licence"],
            date=fields["date"],
        )
        check_entry(entry)
        intact = (
            fields["key"] == key_of(operation_part, environment_part, entry)
            and fields["checksum"] == _checksum(fields["key"], said, figures)
            and fields["instant_us"] == instant_us(entry.date)
        )
    except (TypeError, RecursionError, EntryError) as error:
        raise ValueError(str(error)) from error
    if not intact:
        raise ValueError("its checksum is that of other figures")
    return entry


def _layout_text(layout: str | tuple[int, ...]) -> str:
    return layout if isinstance(layout, str) else json_text(layout_record(layout))


def _real(figure: float | None) -> float | None:
    return None if figure is None else float(figure)


def _checksum(key: bytes, said: tuple[Any, ...], figures: tuple[Any, ...]) -> bytes:
    return digest(key.hex(), json_text([*said, *figures]))
