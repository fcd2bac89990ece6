"""What nccl-tests print, as measured collectives."""

from __future__ import annotations

import re

from daceml.errors import WhatIfError
from daceml.simulation.network.collectives import Collective
from daceml.simulation.network.measured import MeasuredCollective

# size, count, type, [redop, [root]], out of place: time in us, algbw, busbw
_ROW = re.compile(
    r"(?P<size>\d+)\s+\d+\s+[a-z]\w*(\s+[a-z]+)?(\s+-?\d+)?\s+(?P<time>\d+(\.\d+)?)\s+\d+\.\d+\s+\d+\.\d+"
)
_RANK = re.compile(r"#\s+Rank\s+(?P<rank>\d+)\b")


def read_log(text: str, *, collective: Collective, source: str) -> MeasuredCollective:
    """The times out of place in the output of a program of nccl-tests, as it is or through mpirun.

    Args:
        collective: which the program measured; its output does not say so.
    Raises:
        WhatIfError: there are no ranks or fewer than two sizes in it.
    """
    ranks = {int(match["rank"]) for match in _RANK.finditer(text)}
    if not ranks:
        raise WhatIfError(
            "no rank is named in the output of nccl-tests",
            where=source,
            fix="give all that the program printed, from '# Using devices' on",
        )
    rows = [(float(match["size"]), float(match["time"])) for match in _ROW.finditer(text)]
    measured = [(size, time_us) for size, time_us in rows if size > 0 and time_us > 0]
    return MeasuredCollective.of(measured, collective=collective, devices=len(ranks), source=source)
