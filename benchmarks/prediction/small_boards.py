"""What boards of little power reach in large products, each as the others of the set say."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from benchmarks.prediction.blind import TABLES, neusight
from daceml.devices.roofline import SMALL_BOARD_W
from daceml.devices.specification import Device, Sourced
from daceml.operations.models.products import products

OPERATORS = ("bmm", "linear")
LARGE_S = 1e-3
# Of the rates of large products: what the best of them reach, and no outlier
REACHED = 0.99
ARITHMETIC = "float32"


def shares(folder: Path) -> dict[str, float]:
    """Name of a small board -> share of its peak, as the mean over operators; nothing without the tables."""
    found: dict[str, list[float]] = {}
    for operator in OPERATORS:
        if not (folder / TABLES.format(operator=operator)).is_dir():
            continue
        table = neusight(folder, operator)
        work = products(table.operations)
        assert work is not None
        flops = 2 * work.batch * work.m * work.n * work.k
        for name, seconds in table.seconds.items():
            device = table.devices[name]
            if is_small(device):
                large = seconds > LARGE_S
                rate = float(np.quantile(flops[large] / seconds[large], REACHED))
                peak = device.need(f"peak_flops_per_s.{ARITHMETIC}", why="a share is of the peak")
                found.setdefault(name, []).append(rate / peak)
    return {name: float(np.mean(each)) for name, each in found.items()}


def without_its_own(device: Device, shares_of_boards: dict[str, float]) -> Device:
    """A small board with the share of the other small ones; any other device as it is."""
    others = [share for name, share in shares_of_boards.items() if name != device.name]
    if not is_small(device) or not others:
        return device
    peak = device.need(f"peak_flops_per_s.{ARITHMETIC}", why="a share is of the peak")
    figure = Sourced(
        value=float(np.mean(others)) * peak, source="NeuSight's rows of other small boards", verified=True
    )
    return replace(
        device,
        achieved_gemm_flops_per_s={**device.achieved_gemm_flops_per_s, ARITHMETIC: figure},
    )


def is_small(device: Device) -> bool:
    return device.board_power_w is not None and device.board_power_w.value <= SMALL_BOARD_W
