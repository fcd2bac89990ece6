"""What a device was measured to reach, apart from what its data sheet promises."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from daceml.errors import ConfigurationError

# A copy from and to arrays of this many times the last cache leaves nothing of use in it.
BEYOND_CACHE = 4


@dataclass(frozen=True, kw_only=True)
class CopyRate:
    """How fast an array is copied.

    Attributes:
        size_bytes: of the array; twice as many move.
        bytes_per_s: read and written, the median of all batches.
        spread: half the distance of the quartiles, relative to the median.
    """

    size_bytes: int
    bytes_per_s: float
    spread: float


@dataclass(frozen=True, kw_only=True)
class ResidentBlocks:
    """What the driver says of a kernel, beside what `occupancy` computes.

    Attributes:
        threads, shared_bytes: of a block; registers: of a thread.
        blocks: resident on a multiprocessor, says the driver.
        expected: says `daceml.devices.occupancy`; None where the architecture is not known to it.
    """

    threads: int
    registers: int
    shared_bytes: int
    blocks: int
    expected: int | None


@dataclass(frozen=True, kw_only=True)
class MeasuredDevice:
    """One device on one day.

    Attributes:
        name: as the system calls it; kind: where its arrays lie.
        threads: that took part, of a processor.
        cache_bytes: of the last cache before memory; None where nobody says.
        copies: by rising size.
        call_us: the host's time for the smallest operation, whenever that runs.
        launch_us: from the start of one empty kernel to that of the next; None where calls are no launches.
        graph_launch_us: the same within a replayed graph.
        products: operations a second of a large product of matrices, by `ARITHMETICS`.
        resident: the driver's word on occupancy.
        versions: of what measured it.
        date: of the measurement, ISO 8601.
    """

    name: str
    kind: Literal["cpu", "cuda"]
    threads: int | None = None
    cache_bytes: int | None
    copies: tuple[CopyRate, ...]
    call_us: float
    launch_us: float | None = None
    graph_launch_us: float | None = None
    products: Mapping[str, float] = field(default_factory=dict[str, float])
    resident: tuple[ResidentBlocks, ...] = ()
    versions: Mapping[str, str]
    date: str

    @property
    def memory(self) -> CopyRate:
        """The rate of memory: of the largest copy, which is beyond all caches if there was room for it."""
        return self.copies[-1]

    @property
    def beyond_caches(self) -> bool:
        """Whether the largest copy says something of memory, and not of a cache."""
        return self.cache_bytes is not None and self.memory.size_bytes >= BEYOND_CACHE * self.cache_bytes

    @property
    def cache(self) -> CopyRate | None:
        """The fastest of the copies whose two arrays fit into the last cache together."""
        room = self.cache_bytes or 0
        within = [c for c in self.copies if 2 * c.size_bytes <= room]
        return max(within, key=lambda c: c.bytes_per_s, default=None)

    @property
    def occupancy_differs(self) -> tuple[ResidentBlocks, ...]:
        """Kernels of which the driver says something else than `occupancy`."""
        return tuple(r for r in self.resident if r.expected is not None and r.expected != r.blocks)

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> MeasuredDevice:
        """The inverse of `as_dict`.

        Raises:
            ConfigurationError: the values are not those of a measured device.
        """
        try:
            copies = tuple(CopyRate(**one) for one in values["copies"])
            resident = tuple(ResidentBlocks(**one) for one in values["resident"])
            rest = {name: value for name, value in values.items() if name not in ("copies", "resident")}
            found = cls(copies=copies, resident=resident, **rest)
        except (KeyError, TypeError) as error:
            raise ConfigurationError(
                "this is no record of a measured device",
                why=f"{type(error).__name__}: {error}",
                fix='give what `daceml doctor --measure --json` prints under "devices"',
            ) from error
        if not copies:
            raise ConfigurationError(
                f"the record of {found.name} has no copies",
                why="the rate of memory comes from them",
                fix="measure again: daceml doctor --measure --json",
            )
        return found
