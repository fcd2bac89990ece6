"""Every scope of a network as a kernel of a device."""

from __future__ import annotations

from daceml.sdfg.network import Network
from daceml.sdfg.passes import PassRecord
from daceml.sdfg.scopes import top_maps
from daceml.transformations.hardware.gpu_points import schedule_points


def schedule_on_device(network: Network) -> int:
    """Spread the points of every top-level map over threads of a device. Mutates the SDFG.

    Returns:
        how many kernels there are.
    """
    entries = top_maps(network.state)
    for entry in entries:
        schedule_points(network.state, entry)
    applied = {"kernels on the device": len(entries)} if entries else {}
    network.passes.append(PassRecord(level="hardware", name="DeviceSchedule", applied=applied))
    return len(entries)
