"""A stopwatch under which every chain takes longer than the one that was made before it, whatever it does."""

from __future__ import annotations

import gc

import torch

from daceml.operations.measuring.stopwatches import Work, nothing


class Ticking:
    """Chains are prepared from short to long, so that the later one takes longer."""

    def __init__(self) -> None:
        self.prepared_work = self.before = 0

    def scope(self):
        return torch.no_grad()

    def prepared(self, work: Work, before: Work = nothing):
        self.prepared_work += 1
        length = self.prepared_work if self.prepared_work > 1 else 1

        def timed() -> float:
            assert not gc.isenabled(), "a collection of garbage would fall into one chain"
            self.before += before is not nothing
            work()
            return 5e-3 + length * 1e-3

        return timed
