"""How devices are joined: some on each node by one link, the nodes by another one."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from daceml.errors import WhatIfError
from daceml.simulation.network.links import Link, link_of

# The least time of a collective: NVIDIA/nccl@01afd20a src/graph/tuning.cc, `baseLat`, ring, protocol Simple.
OVERHEAD_US = 8.4


@dataclass(frozen=True, kw_only=True)
class Topology:
    """Nodes with equally many devices.

    Attributes:
        inside: what joins a device to the others of its node.
        outside: what joins a node to the others, shared by its devices; needed for two nodes or more.
        overhead_us: of every collective, however little it sends.
    Raises:
        WhatIfError: fewer than one device, or several nodes that nothing joins.
    """

    devices_per_node: int
    nodes: int = 1
    inside: Link
    outside: Link | None = None
    overhead_us: float = OVERHEAD_US

    def __post_init__(self) -> None:
        if self.devices_per_node < 1 or self.nodes < 1:
            raise WhatIfError(
                f"{self.nodes} nodes of {self.devices_per_node} devices", fix="give at least one of each"
            )
        if not 0 <= self.overhead_us < math.inf:
            raise WhatIfError(f"an overhead of {self.overhead_us} us", fix="give 0 or more")
        if self.nodes > 1 and self.outside is None:
            raise WhatIfError(
                f"nothing joins the {self.nodes} nodes", fix='give the link between nodes, such as "100Gbps"'
            )

    @property
    def devices(self) -> int:
        """In all."""
        return self.devices_per_node * self.nodes

    @property
    def bus_bytes_per_s(self) -> float:
        """What a ring through all devices can carry: as much as the slowest link on its way.

        A ring that enters and leaves each node once uses all of the node's link.
        """
        links: list[Link] = []
        if self.devices_per_node > 1:
            links.append(self.inside)
        if self.nodes > 1 and self.outside is not None:
            links.append(self.outside)
        return min((link.bytes_per_s for link in links), default=math.inf)

    @property
    def slowest(self) -> Link:
        """The link between the two devices that are farthest apart."""
        return self.inside if self.outside is None or self.nodes == 1 else self.outside

    def at_efficiency(self, efficiency: float) -> Topology:
        """With the share of their bandwidth that links reach."""

        def reached(link: Link) -> Link:
            return replace(link, bytes_per_s=link.bytes_per_s * efficiency)

        outside = None if self.outside is None else reached(self.outside)
        return replace(self, inside=reached(self.inside), outside=outside)

    @classmethod
    def of(cls, devices: str | int, link: str, *, inside: str | None = None) -> Topology:
        """From what people write.

        Args:
            devices: "8" of one node, or "4x8": 4 nodes with 8 each.
            link: between devices of one node, or between nodes where there are several.
            inside: between devices of a node, where there are several nodes with more than one.
        Raises:
            WhatIfError: it cannot be read, or `inside` is missing.
        """
        parts = str(devices).lower().split("x")
        if len(parts) > 2 or not all(part.strip().isdecimal() for part in parts):
            raise WhatIfError(
                f"{devices!r} is not a number of devices", fix='give "8", or nodes and devices of each: "4x8"'
            )
        if len(parts) == 1:
            return cls(devices_per_node=int(parts[0]), inside=link_of(link))
        nodes, each = int(parts[0]), int(parts[1])
        if each > 1 and inside is None:
            raise WhatIfError(
                f"no interconnect of the {each} devices of a node is given",
                fix='give the link inside a node as well, such as "NVLink3"',
            )
        own = link_of(inside if inside is not None else link)
        return cls(devices_per_node=each, nodes=nodes, inside=own, outside=link_of(link))
