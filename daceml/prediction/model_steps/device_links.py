"""How devices of one kind reach each other, from what is known of one."""

from __future__ import annotations

from daceml.devices.specification import Device
from daceml.errors import StepPredictionError
from daceml.simulation.network.links import LINKS, Link
from daceml.simulation.network.topology import Topology
from daceml.simulation.whatif.data_parallel import DataParallel
from daceml.simulation.whatif.optimization import Estimate

MOST = 8
"""Devices of one node; what joins nodes follows from no device."""

# Of NVLink's bandwidth; `DataParallel` has the sources.
_EFFICIENCY = DataParallel.efficiency
# Of PCI Express, devices -> share: all-reduces of 16 MB and more by L40S (ai-dynamo/aiconfigurator, l40s),
# which reach each other through the host. Devices that do so directly are faster.
_THROUGH_HOST = {2: 0.63, 4: 0.17, 8: 0.05}
_DIRECTLY = 0.75


def topology_of(device: Device, devices: int) -> tuple[Topology, Estimate]:
    """So many devices on one node, and which share of their links' bandwidth collectives reach.

    Raises:
        StepPredictionError: fewer than 1 device or more than 8, or nothing is known that joins several.
    """
    if devices not in range(1, MOST + 1):
        raise StepPredictionError(
            f"a step on {devices} devices is not predicted",
            why=f"a device tells how 1 to {MOST} of a node reach each other, and not what joins nodes",
            fix="ask for fewer, record a run and ask daceml trace whatif --ddp, or see docs/parallelism.md",
        )
    if device.link_bytes_per_s is not None:
        # data sheets count both directions
        link = Link(
            bytes_per_s=device.link_bytes_per_s.value / 2,
            latency_us=LINKS["NVLink4"].latency_us,
            source=device.link_bytes_per_s.source,
        )
        return Topology(devices_per_node=devices, inside=link), _EFFICIENCY
    generation = None if device.pcie_generation is None else f"PCIe{device.pcie_generation.value:g}"
    if generation in LINKS:
        share = next(share for count, share in _THROUGH_HOST.items() if devices <= count)
        reached = Estimate(share, fast=_DIRECTLY, slow=share / 2)
        return Topology(devices_per_node=devices, inside=LINKS[generation]), reached
    if devices == 1:
        return Topology(devices_per_node=1, inside=LINKS["PCIe3"]), _EFFICIENCY
    raise StepPredictionError(
        f"the interconnect of {devices} {device.name} is unknown",
        why="neither a link nor a generation of PCI Express is known of it",
        fix="describe the device in a TOML file with link_bytes_per_s: docs/devices.md",
    )
