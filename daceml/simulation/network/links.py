"""Links between devices: how many bytes a second, and how long a hop takes."""

from __future__ import annotations

import difflib
import math
from dataclasses import dataclass

from daceml.errors import WhatIfError
from daceml.simulation.network.quantities import bytes_per_s


@dataclass(frozen=True, kw_only=True)
class Link:
    """What joins a device, or a node, to the others.

    Attributes:
        bytes_per_s: in one direction, of all lanes together; infinite where it costs nothing.
        latency_us: of one hop of a collective, with the protocol that is best at large sizes.
        source: where the figures come from.
    Raises:
        WhatIfError: a figure that no link can have.
    """

    bytes_per_s: float
    latency_us: float
    source: str = "given"

    def __post_init__(self) -> None:
        if not self.bytes_per_s > 0 or not 0 <= self.latency_us < math.inf:
            raise WhatIfError(
                f"a link of {self.bytes_per_s:g} bytes/s and {self.latency_us:g} us",
                fix="give a bandwidth above zero and a latency that is not below it",
            )


# Of a hop: NCCL, src/graph/tuning.cc, `hwLat`, ring, protocol Simple.
_NVLINK_US, _PCIE_US, _NETWORK_US = 3.4, 5.7, 9.6
_TUNING = "hop: NVIDIA/nccl@01afd20a src/graph/tuning.cc"


def _nvlink(gigabytes_per_s: float) -> Link:
    source = f"half of NVIDIA's total for both directions; {_TUNING}"
    return Link(bytes_per_s=gigabytes_per_s * 1e9, latency_us=_NVLINK_US, source=source)


def _pcie(gigabytes_per_s: float) -> Link:
    source = f"PCI-SIG, 16 lanes less their coding; {_TUNING}"
    return Link(bytes_per_s=gigabytes_per_s * 1e9, latency_us=_PCIE_US, source=source)


# What a device has in all: P100, V100, A100, H100, B200, and 16 lanes of PCI Express.
LINKS = {
    "NVLink1": _nvlink(80),
    "NVLink2": _nvlink(150),
    "NVLink3": _nvlink(300),
    "NVLink4": _nvlink(450),
    "NVLink5": _nvlink(900),
    "PCIe3": _pcie(15.75),
    "PCIe4": _pcie(31.5),
    "PCIe5": _pcie(63.0),
}


def link_of(text: str, *, latency_us: float | None = None) -> Link:
    """A link by its name ("NVLink3", in any case) or its bandwidth ("100Gbps", "25GB/s").

    Args:
        latency_us: of a hop; None takes that of the named link, or of a network.
    Raises:
        WhatIfError: neither is known.
    """
    named = {name.lower(): link for name, link in LINKS.items()}.get(text.strip().lower())
    if named is not None:
        return named if latency_us is None else Link(bytes_per_s=named.bytes_per_s, latency_us=latency_us)
    try:
        wanted = bytes_per_s(text)
    except WhatIfError as error:
        near = difflib.get_close_matches(text, LINKS, n=3) or list(LINKS)
        raise WhatIfError(
            f"{text!r} is neither a bandwidth nor a known link",
            fix=f'give "100Gbps", "25GB/s", or one of {", ".join(near)}',
        ) from error
    return Link(bytes_per_s=wanted, latency_us=_NETWORK_US if latency_us is None else latency_us)
