"""A duration that is not known for certain: what is likely, between which limits, and who says so."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

from daceml.devices.specification import Device
from daceml.operations.database.records import Operation

Basis = Literal["measured", "learned", "scaled", "roofline"]
"""From the surest to the least sure: this operation on this device; a model of such operations; this
operation on another device; rates of the device alone."""


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """How long something takes.

    Attributes:
        low_us, high_us: nine in ten are between them.
        outside: why what was known does not reach here, "" where it does. Limits of such an estimate are
            wide, and its reader is told.
        notes: what was not known and what stood in for it.
    """

    duration_us: float
    low_us: float
    high_us: float
    basis: Basis
    outside: str = ""
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not 0 <= self.low_us <= self.duration_us <= self.high_us < float("inf"):
            raise ValueError(f"{self.duration_us} us is not between {self.low_us} and {self.high_us}")


class DurationSource(Protocol):
    """Whoever knows durations of operations."""

    def estimate(self, operation: Operation, device: Device) -> Estimate | None:
        """The duration of one call on a device; None where nothing is known."""
        ...
