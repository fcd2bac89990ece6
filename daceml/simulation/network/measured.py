"""How long collectives take, as somebody measured them: a table of sizes, and straight lines between them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from daceml.errors import WhatIfError
from daceml.simulation.network.collectives import Collective


@dataclass(frozen=True, kw_only=True, eq=False)
class MeasuredCollective:
    """Times of one collective on one machine.

    Attributes:
        devices: that took part.
        sizes_bytes: [k] ascending, of the whole array.
        times_us: [k].
        source: who measured.
    """

    collective: Collective
    devices: int
    sizes_bytes: NDArray[np.float64]
    times_us: NDArray[np.float64]
    source: str

    @classmethod
    def of(
        cls, rows: Iterable[tuple[float, float]], *, collective: Collective, devices: int, source: str
    ) -> MeasuredCollective:
        """From (bytes, microseconds); of a size that was measured several times, the median.

        Raises:
            WhatIfError: fewer than two sizes, or a figure that is not above zero and finite.
        """
        times: dict[float, list[float]] = {}
        for size, time_us in rows:
            if not (0 < size < np.inf and 0 < time_us < np.inf):
                raise WhatIfError(
                    f"a measured {collective} of {size} bytes took {time_us} us",
                    where=source,
                    fix="give sizes and times above zero",
                )
            times.setdefault(float(size), []).append(float(time_us))
        if len(times) < 2:
            raise WhatIfError(
                f"{len(times)} measured sizes of {collective}", where=source, fix="measure at least two"
            )
        sizes = sorted(times)
        return cls(
            collective=collective,
            devices=devices,
            sizes_bytes=np.array(sizes, np.float64),
            times_us=np.array([float(np.median(times[size])) for size in sizes], np.float64),
            source=source,
        )

    def duration_us(self, size_bytes: float) -> float:
        """Straight lines between what was measured: a latency and a bandwidth from each size to the next.

        Below the smallest size it takes as long as that; above the largest one, the last bandwidth holds.
        """
        if size_bytes <= 0:
            return 0.0
        if size_bytes >= self.sizes_bytes[-1]:
            return float(self.times_us[-1] * size_bytes / self.sizes_bytes[-1])
        return float(np.interp(size_bytes, self.sizes_bytes, self.times_us))
