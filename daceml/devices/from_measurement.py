"""A device from what was measured of it: a processor, or one that the catalogue knows by its data sheet."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from daceml.devices.measured import MeasuredDevice
from daceml.devices.specification import Device, Sourced
from daceml.errors import ConfigurationError, DeviceError

UNKNOWN = "unknown"  # vendor and architecture, which no measurement says


def device_from(measured: MeasuredDevice, known: Device | None = None) -> Device:
    """What was measured, above what is known of such a device.

    Memory counts only where the largest copy was beyond all caches. The multiprocessors of a processor are
    the threads that took part, and its floor is its smallest call; of another device it is the distance of
    kernels in a replayed graph, which is nearest to what a kernel takes that does nothing, or else the
    distance of launches.

    Args:
        known: from the catalogue; None for a processor.
    Raises:
        DeviceError: an achieved rate is above the peak of `known`: it is another device.
    """
    source = f"measured by `daceml doctor --measure`, {measured.date}"

    def figure(value: float | None) -> Sourced | None:
        return None if value is None else Sourced(value=value, source=source, verified=True)

    graph_us = measured.launch_us if measured.graph_launch_us is None else measured.graph_launch_us
    floor_us = measured.call_us if measured.kind == "cpu" else graph_us
    reached = measured.memory.bytes_per_s if measured.beyond_caches else None
    in_cache = measured.cache.bytes_per_s if measured.cache is not None else None
    products = {
        name: Sourced(value=rate, source=source, verified=True) for name, rate in measured.products.items()
    }
    base = known or Device(
        name=measured.name,
        kind="cpu" if measured.kind == "cpu" else "gpu",
        vendor=UNKNOWN,
        architecture=UNKNOWN if measured.threads is None else f"{measured.threads} threads",
    )
    notes = base.notes
    if not measured.beyond_caches:
        notes += (
            "The largest copy that was measured may have had a part in a cache: memory's rate is not known.",
        )
    return replace(
        base,
        multiprocessors=figure(measured.threads) or base.multiprocessors,
        achieved_gemm_flops_per_s={**base.achieved_gemm_flops_per_s, **products},
        achieved_bytes_per_s=figure(reached) or base.achieved_bytes_per_s,
        l2_bytes=figure(measured.cache_bytes) or base.l2_bytes,
        l2_bytes_per_s=figure(in_cache) or base.l2_bytes_per_s,
        floor_us=figure(floor_us) or base.floor_us,
        notes=notes,
    )


def devices_of_measurement(path: Path, known: Sequence[Device] = ()) -> tuple[Device, ...]:
    """The devices in a file that `daceml doctor --measure --json` wrote.

    Args:
        known: the catalogue; a device whose name is among them has their data sheet as well.
    Raises:
        DeviceError: the file cannot be read, or holds no measured device.
    """
    fix = "write one: daceml doctor --measure --json > devices.json"
    try:
        values: Any = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DeviceError(
            "a file of measured devices cannot be read", where=str(path), why=str(error), fix=fix
        ) from error
    records = values.get("devices") if isinstance(values, dict) else None
    if not isinstance(records, list) or not records:
        raise DeviceError(
            "this file holds no measured device", where=str(path), why='there is no list "devices"', fix=fix
        )
    found: list[Device] = []
    for record in records:
        try:
            measured = MeasuredDevice.from_dict(record)
            found.append(device_from(measured, _known(measured, known)))
        except (ConfigurationError, DeviceError) as error:
            error.where = str(path)
            raise
        except (AttributeError, TypeError) as error:
            why = f"{type(error).__name__}: {error}"
            raise DeviceError(
                "this file holds no measured device", where=str(path), why=why, fix=fix
            ) from error
    return tuple(found)


def _known(measured: MeasuredDevice, known: Sequence[Device]) -> Device | None:
    if measured.kind == "cpu":
        return None
    return next((one for one in known if one.is_called(measured.name)), None)
