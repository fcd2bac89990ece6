"""Every scope of a network as a kernel of a device."""

from __future__ import annotations

from dace.sdfg import nodes

from daceml.sdfg.network import Network
from daceml.sdfg.passes import PassRecord
from daceml.transformations.hardware.gpu_points import schedule_points


def schedule_on_device(network: Network) -> int:
    """Spread the points of every top-level map over threads of a device. Mutates the SDFG.

    Returns:
        how many kernels there are.
    """
    state = network.state
    scopes = state.scope_dict()
    entries = [n for n in state.nodes() if isinstance(n, nodes.MapEntry) and scopes[n] is None]
    for entry in entries:
        schedule_points(state, entry)
    applied = {"kernels on the device": len(entries)} if entries else {}
    network.passes.append(PassRecord(level="hardware", name="DeviceSchedule", applied=applied))
    return len(entries)
