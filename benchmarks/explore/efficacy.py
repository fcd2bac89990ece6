"""What passes are worth: predicted without compiling, and measured."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from benchmarks.bars import Bar
from benchmarks.explore.cases import Case
from daceml.exploration.effects import Effect, effects

NETWORKS = ("mbconv", "mobilenetv2", "bert", "efficientnet_b0")
COUNT, PASSES, POINTS = 15, 6, 0.10
_LIMIT_S = 6.0


def network_row(name: str) -> dict[str, Any]:
    """Effects of all passes on a network's inference."""
    module, inputs = Case(name=name, training=False, variants=0).subject()
    found = effects(module, *inputs, measure=True, alone=False, limit_s=_LIMIT_S, course=True)
    return {"case": f"effects, {name}", "effects": [_row(effect) for effect in found]}


def judged(rows: Sequence[dict[str, Any]]) -> list[Bar]:
    """Of effects that are there beyond doubt: their number, their signs and their sizes."""
    seen = [effect for row in rows for effect in row["effects"] if effect["beyond_doubt"]]
    passes = {effect["pass"] for effect in seen}
    networks = [row["case"] for row in rows if any(effect["beyond_doubt"] for effect in row["effects"])]
    wrong = [one for one in seen if (one["predicted"] - 1) * (one["measured"] - 1) <= 0]
    off = [abs(one["predicted"] - one["measured"]) for one in seen]
    return [
        Bar(name="effects: fewer than 15 beyond doubt, by", figure=max(COUNT - len(seen), 0), limit=0,
            note=f"{len(seen)} of {sum(len(row['effects']) for row in rows)}"),
        Bar(name="effects: fewer than 6 passes or 4 networks, by", limit=0,
            figure=max(PASSES - len(passes), 0) + max(len(NETWORKS) - len(networks), 0),
            note=f"{len(passes)} passes, {len(networks)} networks"),
        Bar(name="effects: signs that are wrong", figure=len(wrong), limit=0,
            note=", ".join(one["pass"] for one in wrong)),
        Bar(name="effects: size off by, worst", figure=max(off, default=None), limit=POINTS,
            note=f"{sum(one <= POINTS for one in off)} of {len(off)} within"),
    ]  # fmt: skip


def _row(effect: Effect) -> dict[str, Any]:
    seen = effect.measured_among
    return {
        "pass": effect.name,
        "predicted": None if effect.among is None else effect.among.value,
        "measured": None if seen is None else seen.value,
        "low": None if seen is None else seen.low,
        "high": None if seen is None else seen.high,
        "beyond_doubt": seen is not None and effect.changes and seen.beyond_doubt,
        "why": effect.why,
    }
