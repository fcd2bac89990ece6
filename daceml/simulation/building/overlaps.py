"""Streams whose work overlaps: a stream runs one task after the other, so recorded times are wrong there.

Real streams overlap by less than a hundredth of their time: a kernel begins while the last blocks of the one
before it end.
"""

from __future__ import annotations

from daceml.simulation.building.draft import Draft

_MOST_OVERLAP = 0.1  # of the time of a stream's tasks


def warn_of_overlaps(draft: Draft) -> None:
    """A warning for each stream that seems to do much of its work at once."""
    for lane, members in enumerate(draft.on_lane):
        if draft.lanes[lane].kind != "stream":
            continue
        sum_us = overlap_us = 0.0
        until_us = float("-inf")
        for number in members:
            row = draft.rows[number]
            lasted_us = row.end_us - row.begin_us
            sum_us += lasted_us
            overlap_us += min(max(until_us - row.begin_us, 0.0), lasted_us)
            until_us = max(until_us, row.end_us)
        if overlap_us > _MOST_OVERLAP * sum_us:
            draft.warnings.append(
                f"tasks of {draft.lanes[lane].name} overlap for {overlap_us / sum_us:.0%} of their time,"
                " though a stream runs one after the other: durations are wrong, and so are figures that"
                " follow from them"
            )
