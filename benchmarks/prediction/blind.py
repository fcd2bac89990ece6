"""What a prediction may see: operations, other devices' rows, and figures from elsewhere than the answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from daceml.devices.catalogue import find_device
from daceml.devices.specification import Device, Sourced
from daceml.errors import DeviceError
from daceml.operations.database.importers.neusight import import_neusight
from daceml.operations.database.records import Entry
from daceml.operations.models.observations import Observations, observations, one_table

Array = NDArray[np.float64]

NEUSIGHT = ("add", "gelu", "softmax", "ln", "bmm", "linear", "conv")
TABLES = "measurements/neusight/train/{operator}/p2.1.0"
_DATE = "2026-11-20"


@dataclass(frozen=True, kw_only=True)
class Question:
    """Operations on a target whose durations are hidden.

    Attributes:
        table: without a column of the target.
        target: its figures, without those that were taken from the set that is asked about.
        seconds: [operations] the answers, for the judge alone.
    """

    table: Observations
    target: Device
    seconds: Array


def neusight(folder: Path, operator: str) -> Observations:
    """All rows of an operator, on all devices of the set."""
    files = sorted((folder / TABLES.format(operator=operator)).glob("*.csv.gz"))
    entries = [entry for file in files for entry in import_neusight(file, date=_DATE).entries]
    return table_of(entries, "NeuSight")


def table_of(entries: Sequence[Entry], source: str) -> Observations:
    """Entries of one kind, with figures of devices that do not come from a set of this name."""
    return one_table(observations(entries, figures_without(source)))


def question(table: Observations, target: str) -> Question:
    """The operations that were measured on a device, as if they had not been."""
    known = np.isfinite(table.seconds[target])
    rows = table.at(known)
    return Question(table=rows.without(target), target=rows.devices[target], seconds=rows.seconds[target])


def figures_without(source: str) -> Callable[[str], Device | None]:
    """Figures of a device by its name, without measured ones whose source names this set."""

    def hidden(figure: Sourced | None) -> bool:
        return figure is not None and source.casefold() in figure.source.casefold()

    def figures(name: str) -> Device | None:
        try:
            device = find_device(name)
        except DeviceError:
            return None
        products = device.achieved_gemm_flops_per_s
        return replace(
            device,
            achieved_bytes_per_s=None if hidden(device.achieved_bytes_per_s) else device.achieved_bytes_per_s,
            achieved_gemm_flops_per_s={k: v for k, v in products.items() if not hidden(v)},
        )

    return figures
