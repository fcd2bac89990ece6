"""What a session of one rank needs of the others."""

from __future__ import annotations

from typing import Protocol

from daceml.compiler.averaging import Averaging
from daceml.runtime.autograd import GradientExchange
from daceml.runtime.records.gradients import BucketRecord


class OtherRanks(Protocol):
    """The other ranks of a run, as `daceml.distributed` knows them."""

    @property
    def averaging(self) -> Averaging:
        """What backward programs are made with."""
        ...

    @property
    def exchange(self) -> GradientExchange:
        """Runs the all-reduces of backward programs."""
        ...

    def agree(self, buckets: tuple[BucketRecord, ...]) -> bool:
        """Take over the buckets of rank 0; whether a program with `buckets` may run as it is."""
        ...
