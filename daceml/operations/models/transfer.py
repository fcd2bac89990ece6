"""Operations on a device where nothing was measured, from what they took on others.

What analysis leaves unexplained on devices that are alike is taken over: ratios of measured to analysed
durations, weighted by how near each device's figures are. Analysis alone, which takes nothing over, is one
more voice among them. How far off that may be comes from doing the same for each device that was measured, as
if it had not been.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from daceml.devices.specification import Device
from daceml.errors import EstimationError
from daceml.operations.estimate import Estimate
from daceml.operations.models.features import described
from daceml.operations.models.observations import Observations
from daceml.operations.models.row_transfer import row_logarithms
from daceml.operations.work.row_work import OPERATORS

Array = NDArray[np.float64]

# Figures that differ by a factor of e have a third of the weight
_REACH = 1.0
_COVERED = 0.9
_FEWEST_DEVICES = 2
# Errors below this are measurement's
_LEAST_ERROR = 0.02


def transferred(table: Observations, target: Device) -> list[Estimate]:
    """How long the operations of a table take on another device.

    Args:
        table: without a column of the target; each operation was measured on at least one device.
    Returns:
        estimates of basis "scaled", one for each operation.
    Raises:
        EstimationError: fewer than two devices were measured, or the target was.
        DeviceError: figures of a device are not known.
    """
    if target.name in table.seconds:
        raise EstimationError(
            f"{target.name} was measured",
            why="the table has a column of it",
            fix="look it up, or fit a model",
        )
    if len(table.seconds) < _FEWEST_DEVICES:
        raise EstimationError(
            f"nothing can be taken over to {target.name}",
            why=f"these operations were measured on {len(table.seconds)} devices, and it takes two to know"
            " how far off that is",
            fix="measure them on another device, or estimate them by the roofline",
        )
    inner = [
        (_by_each(table.without(name), device), np.log(table.seconds[name]), _apart_from(table, device, name))
        for name, device in table.devices.items()
    ]
    errors = np.stack([np.abs(_medians(each, apart) - logs) for each, logs, apart in inner], axis=1)
    predicted = _medians(_by_each(table, target), _apart_from(table, target))
    # of one operation the devices tell how alike they are; of all together how far off that is
    own = np.sqrt(np.nanmean(errors**2, axis=1)) + _LEAST_ERROR
    width = _width(errors / own[:, None], devices=len(table.seconds))
    least = described(table.operations, target, floor_s=0.0).least
    predicted = np.maximum(predicted, least)
    half = width * own
    note = f"from {', '.join(sorted(table.seconds))}"
    return [
        Estimate(
            duration_us=float(1e6 * np.exp(one)),
            low_us=float(1e6 * np.exp(max(one - by, min(bound, one)))),
            high_us=float(1e6 * np.exp(one + by)),
            basis="scaled",
            notes=(note,),
        )
        for one, by, bound in zip(predicted, half, least, strict=True)
    ]


def _by_each(table: Observations, target: Device) -> Array:
    """[operations, devices + 1] logarithm of the target's seconds, as each device and analysis has it."""
    each = [_by_one(table, name, np.log(table.seconds[name]), target) for name in table.seconds]
    return np.stack([*each, described(table.operations, target, floor_s=table.floor_s()).base], axis=1)


def _apart_from(table: Observations, target: Device, left_out: str = "") -> Array:
    """[devices + 1] how unlike the target each device is; analysis as the middle one of them."""
    apart = [_apart(table.devices[name], target) for name in table.seconds if name != left_out]
    return np.array([*apart, np.median(apart)])


def _medians(values: Array, apart: Array) -> Array:
    """[rows] medians of values [rows, devices], weighted by nearness; NaN where there is none.

    A device of its own kind among several decides nothing. Between two values it is where the weights of both
    sides are equal, as if each were spread to its neighbours.
    """
    weights = np.where(np.isnan(values), 0.0, np.exp(-(apart - apart.min()) / _REACH) + 1e-9)
    order = np.argsort(values, axis=1)  # NaN last
    ordered, counts = (np.take_along_axis(one, order, axis=1) for one in (values, weights))
    middle = np.cumsum(counts, axis=1) - counts / 2
    half = counts.sum(axis=1) / 2
    rows = np.arange(len(values))
    last = np.maximum((counts > 0).sum(axis=1) - 1, 0)
    after = np.minimum((middle < half[:, None]).sum(axis=1), last)
    before = np.maximum(after - 1, 0)
    span = middle[rows, after] - middle[rows, before]
    share = np.where(span > 0, (half - middle[rows, before]) / np.where(span > 0, span, 1), 1.0)
    share = np.clip(share, 0.0, 1.0)
    return ordered[rows, before] * (1 - share) + ordered[rows, after] * share


def _by_one(table: Observations, name: str, logs: Array, target: Device) -> Array:
    """[operations] what one device says of another."""
    origin, floor_s = table.devices[name], table.floor_s()
    if table.operations[0].operator in OPERATORS:
        return row_logarithms(table.operations, logs, origin, target, floor_s)
    before, after = (described(table.operations, device, floor_s=floor_s).base for device in (origin, target))
    return logs - before + after


def _apart(one: Device, other: Device) -> float:
    """Devices are alike that have as many multiprocessors, and as much arithmetic for each byte."""
    return float(np.abs(_figures(one) - _figures(other)).sum())


def _figures(device: Device) -> Array:
    why = "devices are compared by it"
    flops = device.need("peak_flops_per_s.float32", why=why)
    memory = device.need("memory_bytes_per_s", why=why)
    return np.log([device.need("multiprocessors", why=why), flops / memory])


def _width(ratios: Array, *, devices: int) -> float:
    """The quantile that covers, with one more device than there are, as conformal prediction has it."""
    level = min(_COVERED * (devices + 1) / devices, 1.0)
    return float(np.nanquantile(ratios, level))


def known_rows(table: Observations, fewest: int = _FEWEST_DEVICES) -> Sequence[int]:
    """Operations that were measured on at least so many devices."""
    count = np.sum([np.isfinite(column) for column in table.seconds.values()], axis=0)
    return np.flatnonzero(count >= fewest).tolist()
