"""Every scope of a network as a kernel of a device."""

from __future__ import annotations

from dace import dtypes

from daceml.sdfg.network import Network
from daceml.sdfg.passes import PassRecord
from daceml.sdfg.scopes import top_maps


def schedule_on_device(network: Network) -> int:
    """Make every top-level map one of a device. Mutates the SDFG.

    How its points are spread over threads is decided for each kernel once, when its code is generated
    (`device_kernel.py`): 24 equal layers have the kernels of one.

    Returns:
        how many kernels there are.
    """
    entries = top_maps(network.state)
    for entry in entries:
        entry.map.schedule = dtypes.ScheduleType.GPU_Device
    applied = {"kernels on the device": len(entries)} if entries else {}
    network.passes.append(PassRecord(level="hardware", name="DeviceSchedule", applied=applied))
    return len(entries)
