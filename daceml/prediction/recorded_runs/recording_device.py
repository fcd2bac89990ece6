"""On which device a run was recorded, as the profiler wrote it or as the user says."""

from __future__ import annotations

from daceml.devices.catalogue import find_device
from daceml.devices.specification import Device
from daceml.errors import DeviceError, OriginDeviceError
from daceml.profiling.trace import EventKind, Trace


def origin_of(trace: Trace, given: str | Device | None = None) -> Device:
    """The device that ran the kernels of a trace.

    Args:
        given: a device, or a name or file of one as `find_device` takes it; None reads the trace's header.
    Raises:
        OriginDeviceError: the header names no device, one that the catalogue does not have, or several kinds.
        DeviceError: no device has the given name.
    """
    if isinstance(given, Device):
        return given
    if given is not None:
        return find_device(given)
    names = list(dict.fromkeys(_names(trace)))
    if len(names) != 1:
        raise OriginDeviceError(
            "it is not known on which device this run was recorded",
            where=trace.source,
            why=f"the header names {', '.join(names)}" if names else "the header names no device",
            fix="say it: --from DEVICE; daceml devices lists what is known",
        )
    try:
        return find_device(names[0])
    except DeviceError as error:
        raise OriginDeviceError(
            f"this run was recorded on {names[0]!r}, of which nothing is known",
            where=trace.source,
            why=error.why,
            fix="name the device of the catalogue that it is, or a file that describes it: --from DEVICE",
        ) from error


def _names(trace: Trace) -> list[str]:
    """Of the devices that ran something; of all where the events do not say which."""
    events = trace.events
    lanes = {int(events.lane[event]) for event in events.of(EventKind.KERNEL).tolist()}
    used = {trace.lanes[lane].device for lane in lanes}
    named = [(one.get("id"), one.get("name")) for one in trace.devices]
    chosen = [name for number, name in named if number in used and isinstance(name, str)]
    return chosen or [name for _, name in named if isinstance(name, str)]
