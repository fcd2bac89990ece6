"""Which gradients are averaged over ranks, and the buckets that the ranks have agreed on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from daceml.runtime.records.gradients import BucketRecord
from daceml.transformations.hardware.gradient_buckets import BucketLimits


@dataclass(frozen=True, kw_only=True)
class Averaging:
    """What decides where the all-reduces of a backward program stand.

    Attributes:
        parameters: key -> bytes and element type, of what is averaged if it has a gradient.
        unused: whether those without a gradient are sent as well, since other ranks may have one.
        agreed: the buckets of an earlier backward program, which all ranks use; None before there is one.
    """

    parameters: Mapping[str, tuple[int, str]]
    limits: BucketLimits = field(default_factory=BucketLimits)
    unused: bool = False
    agreed: tuple[tuple[str, ...], ...] | None = None

    def key(self) -> str:
        """What of it a program depends on."""
        return f"{sorted(self.parameters.items())} {self.limits} {self.unused} {self.agreed}"


def agreed_buckets(buckets: Sequence[BucketRecord]) -> tuple[tuple[str, ...], ...]:
    """What all ranks have to have in common."""
    return tuple(bucket.parameters for bucket in buckets)
