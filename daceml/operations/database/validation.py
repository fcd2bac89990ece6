"""Which rows a database keeps: those that mean something, and come back as they were."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import get_args

from daceml.errors import EntryError
from daceml.operations.database.records import (
    Direction,
    Duration,
    Entry,
    Environment,
    Mode,
    Operand,
    Operation,
    Provenance,
)

_LARGEST = 2**63 - 1  # of an integer in SQLite and Parquet
# what ends a text in C, and halves of characters, which UTF-8 cannot hold
_UNWRITABLE = re.compile("[\0\ud800-\udfff]")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def check_entry(entry: Entry) -> None:
    """Refuse what is no row.

    Raises:
        EntryError: `why` has a line for everything that is wrong.
    """
    _raise(entry.operation, _faults(entry))


def check_operation(operation: Operation) -> None:
    """Refuse what is no operation.

    Raises:
        EntryError: `why` has a line for everything that is wrong.
    """
    _raise(operation, _operation_faults(operation))


@lru_cache(maxsize=1024)
def instant_us(date: str) -> int:
    """Microseconds from 1970 to a date; a day counts from its beginning, and no time zone means UTC.

    Raises:
        ValueError: it is not ISO 8601.
    """
    moment = datetime.fromisoformat(date)
    moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment
    return (moment - _EPOCH) // timedelta(microseconds=1)


def _raise(operation: Operation, faults: Iterator[str]) -> None:
    found = list(faults)
    if found:
        raise EntryError(
            "a row that the database cannot keep",
            where=f"operator {str(operation.operator)[:60]!r}",
            why="\n".join(found),
            fix="correct the row: daceml.operations.database.records says what each field holds",
        )


def _faults(entry: Entry) -> Iterator[str]:
    yield from _operation_faults(entry.operation)
    yield from _environment_faults(entry.environment)
    yield from _duration_faults(entry.duration)
    yield from _one_of("provenance", entry.provenance, get_args(Provenance))
    yield from _text("source", entry.source)
    yield from _text("licence", entry.licence)
    if not isinstance(entry.date, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        yield f"the date is {entry.date!r}, not text"
        return
    try:
        instant_us(entry.date)
    except ValueError:
        yield f"the date {entry.date[:60]!r} is not ISO 8601"


def _operation_faults(operation: Operation) -> Iterator[str]:
    yield from _text("operator", operation.operator)
    yield from _one_of("direction", operation.direction, get_args(Direction))
    yield from _text("kernel", operation.kernel, empty=True)
    for place, operand in enumerate(operation.operands):
        yield from _operand_faults(f"operand {place}", operand)
    for name, value in operation.attributes.items():
        yield from _text("attribute's name", name)
        if not _is_attribute(value):
            yield f"attribute {name!r} is of type {type(value).__name__}: {str(value)[:60]}"


def _operand_faults(what: str, operand: Operand) -> Iterator[str]:
    yield from _text(f"element type of {what}", operand.dtype)
    if type(operand.shape) is not tuple or not all(_is_integer(n) and n >= 0 for n in operand.shape):
        yield f"the shape of {what} is {operand.shape!r}, not a tuple of integers from 0 on"
    if isinstance(operand.layout, str):
        yield from _text(f"layout of {what}", operand.layout)
    elif (
        type(operand.layout) is not tuple  # pyright: ignore[reportUnnecessaryComparison]
        or len(operand.layout) != len(operand.shape)
        or not all(map(_is_integer, operand.layout))
    ):
        yield f"the layout of {what} is {operand.layout!r}: no name, and no stride for each dimension"


def _environment_faults(environment: Environment) -> Iterator[str]:
    yield from _text("device", environment.device)
    yield from _text("fingerprint", environment.fingerprint, empty=True)
    if not isinstance(environment.software, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        yield f"the software is {environment.software!r}, not component -> version"
        return
    for component, version in environment.software.items():
        yield from _text("software's name", component)
        yield from _text(f"version of {component}", version, empty=True)


def _duration_faults(duration: Duration) -> Iterator[str]:
    yield from _one_of("mode", duration.mode, get_args(Mode))
    if not (_is_integer(duration.samples) and duration.samples >= 1):
        yield f"there are {duration.samples!r} samples, not one or more"
    for name in ("median_s", "mad_s", "p10_s", "p90_s"):
        figure: object = getattr(duration, name)
        if figure is None and name != "median_s":
            continue
        if not isinstance(figure, float | int) or isinstance(figure, bool):
            yield f"{name} is {figure!r}, not a number"
        elif not (0 <= figure <= sys.float_info.max):
            yield f"{name} is {figure}, not a number of seconds from 0 on"


def _text(what: str, value: object, *, empty: bool = False) -> Iterator[str]:
    if not isinstance(value, str):
        yield f"the {what} is {value!r}, not text"
    elif not value and not empty:
        yield f"the {what} is empty"
    elif _UNWRITABLE.search(value):
        yield f"the {what} {value[:60]!r} has characters that no file of text can hold"


def _one_of(what: str, value: object, known: tuple[str, ...]) -> Iterator[str]:
    if value not in known:
        yield f"the {what} is {value!r}, none of {', '.join(known)}"


def _is_integer(value: object) -> bool:
    return type(value) is int and -_LARGEST <= value <= _LARGEST


def _is_attribute(value: object) -> bool:
    if isinstance(value, tuple):
        kinds = {type(one) for one in value}
        return len(kinds) <= 1 and kinds <= {bool, int, float, str} and all(map(_is_attribute, value))
    if isinstance(value, str):
        return not any(_text("attribute", value, empty=True))
    return type(value) in (bool, float) or _is_integer(value)
