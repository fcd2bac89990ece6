"""What passes are worth for a model, and the model on other devices, as plain text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from daceml.exploration.effects import Disagreement, Effect, Ratio
from daceml.exploration.results import Row
from daceml.text_tables import busy, render, table, wrapped

_UNCERTAIN = "?: the interval includes no change, so the pass may help or hurt"
SAME = "the program is the same with and without"
_HEADLINE = (
    "change of a step's time by the pass or addition: more (+) or less (-) than without it; predicted, with "
    "90 % intervals in brackets"
)


def effects_text(found: Sequence[Effect]) -> str:
    """A row for each pass: how much more or less time a step takes with it, among the others and alone."""
    if not found:
        return ""
    measured = any(effect.measured_among is not None for effect in found)
    rows = table("pass or addition", "among all", "alone", *(["by"] if measured else []))
    idle: list[str] = []
    for effect in found:
        name = f"{effect.name}, weights frozen" if effect.frozen else effect.name
        if not effect.changes and not effect.why and effect.alone in (None, Ratio.same()):
            idle.append(name)
            continue
        rows.add_row(
            name, _change(effect.among), _change(effect.alone), *(["prediction"] if measured else [])
        )
        if effect.measured_among is not None or effect.measured_alone is not None:
            rows.add_row("", _change(effect.measured_among), _change(effect.measured_alone), "measurement")
    text = render(rows) if rows.rows else ""
    lines = [*wrapped(_HEADLINE), "", text] if text else []
    if "?" in text:
        lines += wrapped(_UNCERTAIN, indent=2)
    lines += [
        line
        for effect in found
        for one in effect.disagreements
        for line in wrapped(_disagreement(effect, one), indent=2)
    ]
    lines += [line for one in found if one.why for line in wrapped(f"{one.name}: {one.why}", indent=2)]
    for said in dict.fromkeys(effect.disturbance for effect in found if effect.disturbance):
        lines += wrapped(busy(said, "ask again"), indent=2)
    if idle:
        lines += wrapped(f"{SAME}: {', '.join(idle)}", indent=2)
    return "\n".join(lines)


def devices_text(rows: Sequence[Row]) -> str:
    """A row for each device, with its interval; reasons where nothing is known."""
    if not rows:
        return ""
    shown, refused = table("variant", "ms", "90 % interval"), list[str]()
    for row in rows:
        if row.predicted_ms is None or row.low_ms is None or row.high_ms is None:
            refused.append(f"  {row.variant.title}: {row.why}")
        else:
            interval = f"[{row.low_ms:.4g}, {row.high_ms:.4g}]"
            shown.add_row(row.variant.title, f"{row.predicted_ms:.4g}", interval)
    title = "predicted on other devices for the samples of the call, shared by the ranks:"
    return render(title, "", *([shown] if shown.rows else []), *refused)


def effects_json(found: Sequence[Effect], rows: Sequence[Row]) -> dict[str, Any]:
    """Plain values."""
    return {
        "effects": [
            asdict(effect)
            | {
                "interaction": effect.interaction,
                "disagreements": [one.where for one in effect.disagreements],
            }
            for effect in found
        ],
        "devices": [row.to_json() for row in rows],
    }


def _disagreement(effect: Effect, found: Disagreement) -> str:
    predicted, measured = (_figures(one) for one in (found.predicted, found.measured))
    said = f"{effect.name}, {found.where}: {measured} measured, outside the interval of {predicted} predicted"
    return said if effect.disturbance else f"{said}; rely on the measurement"


def _change(ratio: Ratio | None) -> str:
    if ratio is None:
        return ""
    if ratio == Ratio.same():
        return "same program"
    return _figures(ratio) if ratio.beyond_doubt else f"{_figures(ratio)} ?"


def _figures(ratio: Ratio) -> str:
    low, high = (round(one - 1, 2) + 0.0 for one in (ratio.low, ratio.high))  # no -0
    return f"{round(ratio.value - 1, 3) + 0.0:+.1%} [{low:+.0%}, {high:+.0%}]"
