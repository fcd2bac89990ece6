"""Devices that are known, one TOML file each, and how they are found by name.

A bare family name means its most usual variant: V100 the SXM2 of 16 GB, A100 the SXM4 of 80 GB, H100 the
SXM5, P100 the PCIe card. Any other variant is asked for by its own name, or by what its driver calls it.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from functools import cache
from importlib import resources
from pathlib import Path

from daceml.devices.device_file import device_of, read_device
from daceml.devices.from_measurement import devices_of_measurement
from daceml.devices.specification import Device, plain
from daceml.errors import DeviceError

_NEAR = 5
_ALIKE = 0.65  # the nearest name, as difflib tells it: below it, the whole list helps more


@cache
def catalogue() -> tuple[Device, ...]:
    """All devices with a file here, by family and name."""
    files = [one for one in resources.files(__name__).iterdir() if one.name.endswith(".toml")]
    devices = [device_of(one.read_text(encoding="utf-8"), where=one.name) for one in files]
    return tuple(sorted(devices, key=lambda device: (device.family, device.name)))


def find_device(name: str) -> Device:
    """The one device of this name, alias or file: see `find_devices`.

    Raises:
        DeviceError: no device has this name, the file is wrong, or it holds several.
    """
    found = find_devices(name)
    if len(found) == 1:
        return found[0]
    raise DeviceError(
        f"{len(found)} devices were measured, and one is asked for",
        where=name,
        why=", ".join(device.name for device in found),
        fix='keep one of the records under "devices", or take daceml.devices.catalogue.find_devices',
    )


def find_devices(name: str) -> tuple[Device, ...]:
    """The device of a name or alias, in any case and with any separators; or those in a file.

    Args:
        name: of the catalogue; or the path of a `.toml` file, or of a `.json` file that
            `daceml doctor --measure --json` wrote.
    Raises:
        DeviceError: no device has this name, or the file is wrong.
    """
    suffix = Path(name).suffix.lower()
    if suffix == ".toml":
        return (read_device(Path(name)),)
    if suffix == ".json":
        return devices_of_measurement(Path(name), catalogue())
    for device in catalogue():
        if device.is_called(name):
            return (device,)
    raise _unknown(name, catalogue())


def variants(device: Device) -> tuple[Device, ...]:
    """The other devices of its family."""
    return tuple(one for one in catalogue() if one.family == device.family and one.name != device.name)


def _unknown(name: str, devices: Sequence[Device]) -> DeviceError:
    parts = {plain(part) for part in re.split(r"[^A-Za-z0-9]+", name) if part}
    within = [
        device.name
        for device in devices
        if parts and all(any(part in plain(one) for one in (device.name, *device.aliases)) for part in parts)
    ]
    by_plain = {plain(one): device.name for device in devices for one in (device.name, *device.aliases)}
    best = difflib.get_close_matches(plain(name), by_plain, 1, _ALIKE)
    close = [by_plain[one] for one in best and difflib.get_close_matches(plain(name), by_plain, _NEAR)]
    own = "describe your own in a TOML file and give its path: docs/devices.md"
    if len(within) > 1:
        return DeviceError(
            f"{name!r} may be one of several devices",
            why=", ".join(within),
            fix=f"name one of them; or {own}",
        )
    near = list(dict.fromkeys(within + close))
    return DeviceError(
        f"no device is called {name!r}",
        why=f"near are {', '.join(near)}" if near else f"known are {', '.join(d.name for d in devices)}",
        fix=(f"did you mean {near[0]}? Else " if near else "") + own,
    )
