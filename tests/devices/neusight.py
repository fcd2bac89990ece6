"""NeuSight's measured rows of `$DACEML_DATA`, for tests of this folder."""

from __future__ import annotations

import csv
import gzip
import os
from dataclasses import dataclass
from pathlib import Path

import pytest

from daceml.devices.catalogue import find_device
from daceml.devices.specification import Device

DATA = os.environ.get("DACEML_DATA")
needs_data = pytest.mark.skipif(not DATA, reason="DACEML_DATA names no folder of measurements")
_SIZES = {"add": ("B", "H"), "linear": ("B", "M", "N", "K"), "bmm": ("B", "M", "N", "K")}


@dataclass(frozen=True, kw_only=True)
class Row:
    device: Device
    duration_us: float
    sizes: tuple[int, ...]
    blocks: int
    threads: int


def rows(operator: str) -> list[Row]:
    """Every measured row of an operator, in float32, on all devices."""
    folder = Path(DATA or "") / "measurements" / "neusight" / "train" / operator / "p2.1.0"
    found: list[Row] = []
    for file in sorted(folder.glob("*.csv.gz")):
        device = find_device(file.name.removesuffix(".csv.gz"))
        with gzip.open(file, "rt") as text:
            found += [
                Row(
                    device=device,
                    duration_us=float(row["Latency"]) * 1e3,
                    sizes=tuple(int(row[size]) for size in _SIZES[operator]),
                    blocks=int(row["Grid x"]) * int(row["Grid y"]) * int(row["Grid z"]),
                    threads=int(row["Block x"]) * int(row["Block y"]) * int(row["Block z"]),
                )
                for row in csv.DictReader(text)
            ]
    return found
