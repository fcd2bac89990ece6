"""Operations by element or row on another device: each part of their time scaled by what it depends on.

What goes through memory follows its rate; what is done for a row, an element or a byte in the cache follows
multiprocessors and clock; calls follow the host, which is taken to be the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from daceml.devices.roofline import memory_bytes_per_s
from daceml.devices.specification import Device
from daceml.operations.database.records import Operation
from daceml.operations.models.calibrated_roofline import FEWEST, KernelRates, calibrated
from daceml.operations.models.features import described

Array = NDArray[np.float64]

# How much faster a cache is says nothing of another device's: both follow memory
_BY_MEMORY = ("byte from memory", "byte from cache")
_BY_HOST = "call"


def row_logarithms(
    operations: Sequence[Operation], logs: Array, origin: Device, target: Device, floor_s: float
) -> Array:
    """[operations] logarithm of the seconds on the target, NaN where the origin did not measure one.

    Args:
        logs: [operations] of the seconds on the origin; NaN is not known.
        floor_s: what the smallest operation takes as these were timed.
    Raises:
        DeviceError: figures of a device are not known.
    """
    known = np.isfinite(logs)
    if known.sum() < FEWEST:
        before, after = (described(operations, device, floor_s=floor_s).base for device in (origin, target))
        return logs - before + after
    why = "what a cache holds comes at another rate"
    measured = [one for one, there in zip(operations, known, strict=True) if there]
    model = calibrated(measured, np.exp(logs[known]), l2_bytes=origin.need("l2_bytes", why=why))
    there = replace(
        model,
        kernels=tuple(None if one is None else _scaled(one, origin, target) for one in model.kernels),
    )
    found = np.full(len(operations), np.nan)
    # kernels with too few measurements have no rates
    unexplained = logs[known] - np.log(model.predict(measured))
    found[known] = np.log(there.predict(measured)) + unexplained
    return found


def _scaled(rates: KernelRates, origin: Device, target: Device) -> KernelRates:
    memory = memory_bytes_per_s(origin).per_s / memory_bytes_per_s(target).per_s
    compute = _cycles_per_s(origin) / _cycles_per_s(target)
    factors = dict.fromkeys(_BY_MEMORY, memory) | {_BY_HOST: 1.0}
    return replace(rates, seconds={name: s * factors.get(name, compute) for name, s in rates.seconds.items()})


def _cycles_per_s(device: Device) -> float:
    why = "a device does so many steps in a second"
    return device.need("multiprocessors", why=why) * device.need("boost_clock_hz", why=why)
