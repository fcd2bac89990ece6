"""What a training step stores for its backward pass and what it computes again, as plain text."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

from daceml.text_tables import WIDTH, in_millions, wrapped

if TYPE_CHECKING:
    from daceml.runtime.records.gradients import StorageRecord

_SHOWN = 8


def storage_text(records: Sequence[StorageRecord]) -> str:
    """A headline, and the largest arrays with the reason for each; empty where there is no backward pass."""
    if not records:
        return ""
    kept, again = [r for r in records if r.stored], [r for r in records if not r.stored]
    lines = wrapped(f"for the backward pass: {_total(kept)} stored, {_total(again)} computed again")
    for word, group in (("stored", kept), ("again", again)):
        for record in sorted(group, key=lambda r: -r.bytes)[:_SHOWN]:
            text = f"{word:<6} {record.array}, {in_millions(record.bytes)} MB: {record.reason}"
            lines += textwrap.wrap(text, WIDTH, initial_indent="  ", subsequent_indent="    ")
        if len(group) > _SHOWN:
            left = len(group) - _SHOWN
            lines.append(f"  and {left} smaller one{'' if left == 1 else 's'}")
    return "\n".join(lines)


def _total(records: Sequence[StorageRecord]) -> str:
    count = len(records)
    return f"{count} array{'' if count == 1 else 's'} of {in_millions(sum(r.bytes for r in records))} MB"
