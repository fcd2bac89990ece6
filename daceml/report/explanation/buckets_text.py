"""Which gradients are averaged over all ranks, and in which all-reduce, as plain text."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

from daceml.text_tables import WIDTH, in_millions

if TYPE_CHECKING:
    from daceml.runtime.records.gradients import BucketRecord

_NAMED = 4  # parameters of a bucket


def buckets_text(buckets: Sequence[BucketRecord], ranks: str) -> str:
    """A headline, and a line for each bucket in the order in which it is sent; empty where nothing is sent.

    Args:
        ranks: who averages, such as "2 ranks through gloo".
    """
    if not buckets:
        return ""
    count = f"{len(buckets)} bucket{'' if len(buckets) == 1 else 's'}"
    lines = [f"gradients are averaged over {ranks} in {count}, each sent when its gradients are complete:"]
    for number, bucket in enumerate(buckets):
        names = ", ".join(bucket.parameters[:_NAMED])
        left = len(bucket.parameters) - _NAMED
        more = f" and {left} more" if left > 0 else ""
        text = (
            f"{number}: {in_millions(bucket.size_bytes)} MB of {bucket.dtype}, {names}{more}; {bucket.closed}"
        )
        absent = [key for key in bucket.parameters if key not in bucket.present]
        if absent:
            text += f"; this program has no gradient of {', '.join(absent[:_NAMED])}"
        lines += textwrap.wrap(text, WIDTH, initial_indent="  ", subsequent_indent="    ")
    return "\n".join(lines)
