"""Effects of passes on the time of a step, and the model on other devices, as plain text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from daceml.exploration.effects import PATIENCE_S, Disagreement, Effect, Ratio
from daceml.exploration.results import Row
from daceml.text_tables import TextTable, busy, render, table, wrapped

SAME = "the program is the same with and without"
_BUSY, _UNSURE, _UNKNOWN = "? (machine is busy)", "unsure", "unknown"
_FIGURES = ("among", "alone", "measured_among", "measured_alone")
_FACTOR = 2.0  # from which a time is told as a multiple
_SMALL = 0.10  # within which intervals have a decimal


def effects_text(found: Sequence[Effect], *, title: str = "") -> str:
    """A row for each pass: how much slower a step is without it; for each addition, how much faster with it.

    Args:
        title: the first line, such as the model and its mode.
    """
    if not found:
        return ""
    passes, added = (
        [one for one in found if one.addition is addition and not _idle(one)] for addition in (False, True)
    )
    tables = [_table("without", passes)] if passes else []
    tables += [_table("with", added)] if added else []
    lines = [*wrapped(title)] if title else []
    if tables:
        lines += wrapped(_headline(passes, added))
    for rows in tables:
        lines += ["", render(rows)]
    lines += [line for one in _legend(found, tables) for line in wrapped(one, indent=2)]
    lines += [
        line
        for effect in found
        for one in effect.disagreements
        for line in wrapped(_disagreement(effect, one), indent=2)
    ]
    lines += [line for one in found if one.why for line in wrapped(f"{one.name}: {one.why}", indent=2)]
    lines += [line for one in _machine(found) for line in wrapped(one, indent=2)]
    if idle := [_name(one) for one in found if _idle(one)]:
        lines += wrapped(f"{SAME}: {', '.join(idle)}", indent=2)
    return "\n".join(lines)


def devices_text(rows: Sequence[Row], *, train: bool) -> str:
    """A row for each device, with its interval; reasons where nothing is known.

    Args:
        train: whether rows are training steps.
    """
    if not rows:
        return ""
    shown, refused = table("variant", "ms", "90 % interval"), list[str]()
    for row in rows:
        if row.predicted_ms is None or row.low_ms is None or row.high_ms is None:
            refused.append(f"  {row.variant.title}: {row.why}")
        else:
            interval = f"[{row.low_ms:.4g}, {row.high_ms:.4g}]"
            shown.add_row(row.variant.title, f"{row.predicted_ms:.4g}", interval)
    step = "training step, without an optimizer" if train else "forward pass"
    title = f"predicted on other devices: a {step}, in ms for the samples of one call"
    ranks = sorted(
        {row.variant.ranks for row in rows if row.predicted_ms is not None and row.variant.ranks > 1}
    )
    shares = (
        f"  + {count} ranks: each rank has as many samples as the call, so a step of all takes {count} times"
        " this time"
        for count in ranks
    )
    return render(title, "", *([shown] if shown.rows else []), *shares, *refused)


def effects_json(found: Sequence[Effect], rows: Sequence[Row]) -> dict[str, Any]:
    """Plain values; figures that are busy or unknown are null."""
    return {
        "effects": [
            asdict(effect)
            | {name: None for name in _FIGURES if not _given(getattr(effect, name))}
            | {
                "unknown": [name for name in _FIGURES if _too_wide(getattr(effect, name))],
                "interaction": effect.interaction,
                "disagreements": [one.where for one in effect.disagreements],
            }
            for effect in found
        ],
        "devices": [row.to_json() for row in rows],
    }


def _given(ratio: Ratio | None) -> bool:
    return ratio is not None and ratio.known


def _too_wide(ratio: Ratio | None) -> bool:
    return ratio is not None and not ratio.known


def _idle(effect: Effect) -> bool:
    """Whether programs are the same with and without it; a figure that is missing says nothing."""
    same = effect.alone in (None, Ratio.same())
    return same and not (effect.changes or effect.why or effect.unmeasured)


def _name(effect: Effect) -> str:
    return f"{effect.name} *" if effect.frozen else effect.name


def _table(word: str, found: Sequence[Effect]) -> TextTable:
    rows = table(word, "among all", "alone")
    for effect in found:
        rows.add_row(_name(effect), _cell(effect, "among"), _cell(effect, "alone"))
        if any(_asked(effect, name) for name in ("measured_among", "measured_alone")):
            rows.add_row("  measured", _cell(effect, "measured_among"), _cell(effect, "measured_alone"))
    return rows


def _asked(effect: Effect, figure: str) -> bool:
    return getattr(effect, figure) is not None or figure in effect.unmeasured


def _cell(effect: Effect, figure: str) -> str:
    ratio: Ratio | None = getattr(effect, figure)
    if ratio is None:
        return _BUSY if figure in effect.unmeasured else ""
    if ratio == Ratio.same():
        return "same program"
    return _change(_shown(effect, ratio))


def _shown(effect: Effect, ratio: Ratio) -> Ratio:
    """Of the change that is asked for: of leaving a pass out, or of an addition."""
    return ratio if effect.addition else ratio.inverse()


def _headline(passes: Sequence[Effect], added: Sequence[Effect]) -> str:
    changes = [*(["without the pass"] if passes else []), *(["with the addition"] if added else [])]
    return (
        f"predicted change of a step's time {' or '.join(changes)}, with 90 % intervals in brackets "
        "(+: takes more time)"
    )


def _legend(found: Sequence[Effect], tables: Sequence[TextTable]) -> list[str]:
    cells = [cell for rows in tables for row in rows.rows for cell in row]
    shown = [one for one in found if not _idle(one)]
    lines: list[str] = []
    if shown:
        lines.append("among all: the standard recipe with and without it, next to all other passes")
    if any(_asked(one, "alone") for one in shown):
        lines.append("alone: a program with no other pass, with and without it")
    if any(effect.measured_among or effect.measured_alone for effect in shown):
        lines.append("measured: the median of rounds in which both ran, with its 99 % interval")
    if any(cell.startswith(_UNSURE) for cell in cells):
        lines.append(f"{_UNSURE}: the interval includes no change, so a step may be slower or faster")
    if _UNKNOWN in cells:
        lines.append(f"{_UNKNOWN}: the ends of the interval differ by more than a factor of 3")
    if any(one.frozen for one in found):
        lines.append("*: with frozen weights, where alone this pass runs")
    return lines


def _machine(found: Sequence[Effect]) -> list[str]:
    """What other programs did to the measurements."""
    lines = [
        f"{_BUSY[0]}: not measured: the machine is busy. {said[0].upper()}{said[1:]} although measurements "
        f"were repeated for {PATIENCE_S:.0f} s; ask again when it is idle"
        for said in dict.fromkeys(one.busy for one in found if one.busy)
    ]
    if lines:
        return lines
    return [busy(said, "ask again") for said in dict.fromkeys(o.disturbance for o in found if o.disturbance)]


def _disagreement(effect: Effect, found: Disagreement) -> str:
    predicted, measured = (_change(_shown(effect, one)) for one in (found.predicted, found.measured))
    said = f"{effect.name}, {found.where}: {measured} was measured, {predicted} was predicted"
    return said if effect.disturbance else f"{said}; rely on the measurement"


def _change(ratio: Ratio) -> str:
    """Of a time over another one: `12.0% slower [+5%, +20%]`."""
    if not ratio.known:
        return _UNKNOWN
    ends = f"[{', '.join(_ends(ratio))}]"
    if not ratio.beyond_doubt:
        return f"{_UNSURE} {ends}"
    if ratio.value >= _FACTOR:
        return f"{ratio.value:.1f}x the time [{ratio.low:.1f}x, {ratio.high:.1f}x]"
    change = ratio.value - 1
    return f"{abs(change):.1%} {'slower' if change > 0 else 'faster'} {ends}"


def _ends(ratio: Ratio) -> tuple[str, str]:
    low, high = ratio.low - 1, ratio.high - 1
    decimals = 1 if max(abs(low), abs(high)) < _SMALL or round(low, 2) == -1 else 0
    low, high = (round(one, 2 + decimals) + 0.0 for one in (low, high))  # no -0
    return f"{low:+.{decimals}%}", f"{high:+.{decimals}%}"
