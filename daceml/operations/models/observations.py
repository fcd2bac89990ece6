"""What was measured of one kind of operation, on any number of devices, as one table."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from daceml.devices.specification import Device
from daceml.errors import EntryError, EstimationError
from daceml.operations.database.canonical import operation_text
from daceml.operations.database.records import Entry, Mode, Operation
from daceml.operations.models.dimensions import dimensions
from daceml.operations.models.features import described
from daceml.operations.models.operator_model import kind_of
from daceml.operations.work.operator_work import work_of

Array = NDArray[np.float64]
# Of all durations: those that are little more than a call
_SHORTEST = 0.01

DeviceOf = Callable[[str], Device | None]
"""The figures of a device by its name in an entry; None where they are not known."""


@dataclass(frozen=True, kw_only=True)
class Observations:
    """Operations of one mode, and what each took where.

    Attributes:
        kind: text of their mode; timing: how they were measured.
        operations: each once.
        devices: by name, those of which there is a column.
        seconds: name of a device -> [operations], NaN where it was not measured; medians of all entries.
    """

    kind: str
    timing: Mode
    operations: tuple[Operation, ...]
    devices: Mapping[str, Device]
    seconds: Mapping[str, Array]

    def without(self, device: str) -> Observations:
        """As if nothing had ever been measured on a device."""
        return self._with({name: column for name, column in self.seconds.items() if name != device})

    def alone(self, device: str) -> Observations:
        """As if nothing had ever been measured on any other device."""
        return self._with({device: self.seconds[device]})

    def at(self, rows: Sequence[int] | NDArray[np.int64] | NDArray[np.bool_]) -> Observations:
        """Some of the operations."""
        chosen = np.arange(len(self.operations))[np.asarray(rows)]
        kept = tuple(self.operations[i] for i in chosen)
        return self._with({name: column[chosen] for name, column in self.seconds.items()}, kept)

    def sound(self) -> Observations:
        """The operations whose work follows: one odd row is no reason to learn nothing from the others.

        All of them where it follows of none: then it is not known what the operator computes.
        """
        rows = np.array([_has_work(operation) for operation in self.operations], np.bool_)
        return self.at(rows) if rows.any() else self

    def floor_s(self) -> float:
        """What the shortest operations take, on the device in the middle; 0 where nothing was measured."""
        known = [column[np.isfinite(column)] for column in self.seconds.values()]
        shortest = [np.quantile(column, _SHORTEST) for column in known if column.size]
        return float(np.median(shortest)) if shortest else 0.0

    def over_analysis(self, floor_s: float) -> dict[str, Array]:
        """Name of a device -> [operations] logarithm of measured over analysed seconds; NaN is not known."""
        return {
            name: np.log(column) - described(self.operations, self.devices[name], floor_s=floor_s).base
            for name, column in self.seconds.items()
        }

    def _with(
        self, seconds: Mapping[str, Array], operations: tuple[Operation, ...] | None = None
    ) -> Observations:
        return Observations(
            kind=self.kind,
            timing=self.timing,
            operations=self.operations if operations is None else operations,
            devices={name: self.devices[name] for name in seconds},
            seconds=seconds,
        )


def _has_work(operation: Operation) -> bool:
    """Whether flops and bytes are known, numbers, and not below zero."""
    try:
        work = work_of(operation)
        numbers = dimensions([operation]).values
    except (EntryError, OverflowError):
        return False
    return (
        work is not None
        and all(0 <= one < np.inf for one in (work.flops, work.bytes_moved))
        and bool(np.isfinite(numbers).all())
    )


def observations(entries: Iterable[Entry], device_of: DeviceOf) -> list[Observations]:
    """Tables of entries, one for each kind and way of measuring, in the order of their texts.

    Predicted entries, durations of 0 or without end, and those of devices without figures are left out.
    """
    found: defaultdict[tuple[str, Mode], dict[str, tuple[Operation, dict[str, list[float]]]]]
    found = defaultdict(dict)
    devices: dict[str, Device | None] = {}
    for entry in entries:
        name = entry.environment.device
        if name not in devices:
            devices[name] = device_of(name)
        device, seconds = devices[name], entry.duration.median_s
        if device is None or entry.provenance == "predicted" or not 0 < seconds < np.inf:
            continue
        table = found[kind_of(entry.operation), entry.duration.mode]
        _, taken = table.setdefault(operation_text(entry.operation), (entry.operation, {}))
        taken.setdefault(device.name, []).append(seconds)
    by_name = {device.name: device for device in devices.values() if device is not None}
    return [_table(kind, timing, rows, by_name) for (kind, timing), rows in sorted(found.items())]


def _table(
    kind: str,
    timing: Mode,
    rows: Mapping[str, tuple[Operation, dict[str, list[float]]]],
    devices: Mapping[str, Device],
) -> Observations:
    order = [rows[text] for text in sorted(rows)]
    names = sorted({name for _, taken in order for name in taken})
    columns = {
        name: np.array([np.median(taken[name]) if name in taken else np.nan for _, taken in order])
        for name in names
    }
    return Observations(
        kind=kind,
        timing=timing,
        operations=tuple(operation for operation, _ in order),
        devices={name: devices[name] for name in names},
        seconds=columns,
    )


def one_table(tables: Sequence[Observations]) -> Observations:
    """The only table.

    Raises:
        EstimationError: there is none, or several.
    """
    if len(tables) == 1:
        return tables[0]
    raise EstimationError(
        f"{len(tables)} kinds of operations were measured, and one is asked for",
        why="; ".join(table.kind for table in tables),
        fix="choose entries of one operator, with operands of the same types and ranks",
    )
