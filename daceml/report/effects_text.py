"""What passes are worth for a model, and the model on other devices, as plain text."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from daceml.exploration.effects import Effect, Ratio
from daceml.exploration.results import Row
from daceml.text_tables import WIDTH, busy, cell, render, table

SAME = "the program is the same with and without"
_HEADLINE = (
    "time that a step takes more (+) or less (-) with it than without it; predicted, nine of ten in brackets"
)


def effects_text(found: Sequence[Effect]) -> str:
    """A row for each pass: how much more or less time a step takes with it, among the others and alone."""
    if not found:
        return ""
    measured = any(effect.measured_among is not None for effect in found)
    headers = ["pass or addition", "among all", "alone", "among, as measured", "alone, as measured"]
    rows = table(*(headers if measured else headers[:3]))
    rows.columns[0].max_width = 40
    idle: list[str] = []
    for effect in found:
        name = f"{effect.name}, weights frozen" if effect.frozen else effect.name
        if not effect.changes and not effect.why and effect.alone in (None, Ratio.same()):
            idle.append(name)
            continue
        figures = [effect.among, effect.alone, effect.measured_among, effect.measured_alone]
        texts = [_change(ratio) for ratio in (figures if measured else figures[:2])]
        rows.add_row(*map(cell, (name, *texts)))
    lines = [_HEADLINE, "", render(rows)] if rows.row_count else []
    lines += [f"  {effect.name}: {effect.why}" for effect in found if effect.why]
    for said in dict.fromkeys(effect.disturbance for effect in found if effect.disturbance):
        lines += textwrap.wrap(busy(said, "ask again"), WIDTH, initial_indent="  ", subsequent_indent="    ")
    if idle:
        told = f"{SAME}: {', '.join(idle)}"
        lines += textwrap.wrap(told, WIDTH, initial_indent="  ", subsequent_indent="    ")
    return "\n".join(lines)


def devices_text(rows: Sequence[Row]) -> str:
    """A line for each device, with its interval; reasons where nothing is known."""
    if not rows:
        return ""
    lines = [
        "on other devices, predicted, for as many samples as the call has, however many ranks share them:"
    ]
    for row in rows:
        if row.predicted_ms is None or row.low_ms is None or row.high_ms is None:
            lines.append(f"  {row.variant.title}: {row.why}")
        else:
            interval = f"[{row.low_ms:.4g}, {row.high_ms:.4g}]"
            lines.append(f"  {row.variant.title}: {row.predicted_ms:.4g} ms {interval}")
    return "\n".join(lines)


def effects_json(found: Sequence[Effect], rows: Sequence[Row]) -> dict[str, Any]:
    """Plain values."""
    return {
        "effects": [asdict(effect) | {"interaction": effect.interaction} for effect in found],
        "devices": [row.to_json() for row in rows],
    }


def _change(ratio: Ratio | None) -> str:
    if ratio is None:
        return ""
    if ratio == Ratio.same():
        return "same program"
    low, high = (round(one - 1, 2) + 0.0 for one in (ratio.low, ratio.high))  # no -0
    return f"{round(ratio.value - 1, 3) + 0.0:+.1%} [{low:+.0%}, {high:+.0%}]"
