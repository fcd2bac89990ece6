"""Where measurements go, and what is there already; a file of JSON lines is one such place."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol, Self

from daceml.errors import MeasurementFileError
from daceml.profiling.database.records import Attribute, Duration, Entry, Environment, Operand, Operation

_FORMAT = "daceml measurements 1"


class Sink(Protocol):
    """Takes entries, and knows which it has."""

    def add(self, entries: Iterable[Entry]) -> None:
        """Keep entries; once this returns, a process that is killed loses none of them."""
        ...

    def find(self, operation: Operation, device: str) -> Sequence[Entry]:
        """What is known of an operation on the devices of a name."""
        ...


class JsonLines:
    """One file, an entry a line; more is appended, and a line that was cut off by a crash is left out.

    Raises:
        MeasurementFileError: the file is something else.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._known: dict[str, list[Entry]] = {}
        whole = 0
        if path.exists():
            whole = self._read()
        self._file = path.open("r+b" if path.exists() else "wb")
        self._file.truncate(whole)
        self._file.seek(whole)
        if not whole:
            self._write({"format": _FORMAT})

    def __len__(self) -> int:
        return sum(map(len, self._known.values()))

    def add(self, entries: Iterable[Entry]) -> None:
        for one in entries:
            self._write(asdict(one))
            self._known.setdefault(_key(one.operation, one.environment.device), []).append(one)

    def find(self, operation: Operation, device: str) -> Sequence[Entry]:
        return tuple(self._known.get(_key(operation, device), ()))

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _write(self, value: Mapping[str, Any]) -> None:
        self._file.write(json.dumps(value, ensure_ascii=False).encode() + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())

    def _read(self) -> int:
        """Take what is there; how many bytes of it are whole lines."""
        data = self.path.read_bytes()
        whole = data.rfind(b"\n") + 1
        for number, line in enumerate(data[:whole].splitlines(), start=1):
            try:
                value = json.loads(line)
                if number == 1:
                    _check_format(value)
                    continue
                found = entry_from(value)
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise MeasurementFileError(
                    f"{self.path} is no file of measurements",
                    where=f"line {number}",
                    why=f"{type(error).__name__}: {error}",
                    fix="name another file, or remove that line",
                ) from error
            self._known.setdefault(_key(found.operation, found.environment.device), []).append(found)
        if not whole and data:
            raise MeasurementFileError(
                f"{self.path} is no file of measurements",
                why="it has no whole line",
                fix="name another file, or remove this one",
            )
        return whole


def entry_from(value: Mapping[str, Any]) -> Entry:
    """The entry of which `dataclasses.asdict` made plain values.

    Raises:
        KeyError, TypeError, ValueError: it is none.
    """
    operation, where = value["operation"], value["environment"]
    operands = tuple(
        Operand(shape=tuple(one["shape"]), dtype=one["dtype"], layout=_attribute(one["layout"]))  # pyright: ignore[reportArgumentType]
        for one in operation["operands"]
    )
    attributes = {name: _attribute(one) for name, one in operation["attributes"].items()}
    return Entry(
        operation=Operation(
            operator=operation["operator"],
            operands=operands,
            attributes=attributes,
            direction=operation["direction"],
            kernel=operation["kernel"],
        ),
        environment=Environment(**where),
        duration=Duration(**value["duration"]),
        **{name: value[name] for name in ("provenance", "source", "licence", "date")},
    )


def _check_format(value: Any) -> None:
    found = value.get("format")
    if found != _FORMAT:
        raise ValueError(f"its first line says {found!r}, not {_FORMAT!r}")


def _attribute(value: Any) -> Attribute:
    return tuple(value) if isinstance(value, list) else value


def _key(operation: Operation, device: str) -> str:
    return json.dumps([asdict(operation), device], sort_keys=True)
