"""What passes are worth: predicted without compiling, and measured in two processes.

Where a process has its arrays decides some hundredths of its time, and rounds within it do not show that. So
what differs beyond doubt in one process is measured in another one, and counts if it does there, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from math import sqrt
from multiprocessing import get_context
from statistics import mean
from typing import Any

from benchmarks.bars import Bar
from benchmarks.explore.cases import Case
from daceml.exploration.effects import Effect, Ratio, effects

NETWORKS = ("mbconv", "mobilenetv2", "bert", "efficientnet_b0", "resnet50")
COUNT, PASSES, FEWEST_NETWORKS, POINTS, COVERED = 15, 6, 4, 0.10, 0.80
_LIMIT_S = 6.0


def network_row(name: str) -> dict[str, Any]:
    """Effects of all passes on a network's inference."""
    found = network_effects(name)
    # another process: what it predicts knows too much, and only what it measures is taken
    with ProcessPoolExecutor(max_workers=1, mp_context=get_context("spawn")) as another:
        sure = [effect.name for effect in found if _measured_beyond_doubt(effect)]
        again = another.submit(network_effects, name, sure).result() if sure else ()
    seen_again = {effect.name: effect for effect in again}
    return {
        "case": f"effects, {name}",
        "effects": [_row(effect, seen_again.get(effect.name)) for effect in found],
    }


def network_effects(name: str, passes: Sequence[str] = ()) -> tuple[Effect, ...]:
    """Of these passes, or of all, as this process measures them."""
    module, inputs = Case(name=name, training=False, variants=0).subject()
    return effects(module, *inputs, passes=passes, measure=True, alone=False, limit_s=_LIMIT_S, course=True)


def of_both(one: Ratio, other: Ratio | None) -> Ratio:
    """A ratio of two processes: between theirs, and as unsure as both together."""
    if other is None:
        return one
    return Ratio(
        value=sqrt(one.value * other.value), low=min(one.low, other.low), high=max(one.high, other.high)
    )


def _measured_beyond_doubt(effect: Effect) -> bool:
    return effect.measured_among is not None and effect.changes and effect.measured_among.beyond_doubt


def judged(rows: Sequence[dict[str, Any]]) -> list[Bar]:
    """Of effects that are there beyond doubt: their number, their signs and their sizes."""
    seen = [effect for row in rows for effect in row["effects"] if effect["beyond_doubt"]]
    passes = {effect["pass"] for effect in seen}
    networks = [row["case"] for row in rows if any(effect["beyond_doubt"] for effect in row["effects"])]
    wrong = [one for one in seen if (one["predicted"] - 1) * (one["measured"] - 1) <= 0]
    off = [abs(one["predicted"] - one["measured"]) for one in seen]
    undisturbed = [effect for row in rows for effect in row["effects"] if _can_be_held(effect)]
    held = [one["predicted_low"] <= one["measured"] <= one["predicted_high"] for one in undisturbed]
    return [
        Bar(name="effects: fewer than 15 beyond doubt, by", figure=max(COUNT - len(seen), 0), limit=0,
            note=f"{len(seen)} of {sum(len(row['effects']) for row in rows)}"),
        Bar(name="effects: fewer than 6 passes or 4 networks, by", limit=0,
            figure=max(PASSES - len(passes), 0) + max(FEWEST_NETWORKS - len(networks), 0),
            note=f"{len(passes)} passes, {len(networks)} networks"),
        Bar(name="effects: signs that are wrong", figure=len(wrong), limit=0,
            note=", ".join(one["pass"] for one in wrong)),
        Bar(name="effects: size off by, worst", figure=max(off, default=None), limit=POINTS,
            note=f"{sum(one <= POINTS for one in off)} of {len(off)} within"),
        Bar(name="effects: predicted intervals that hold, short of 80 %", limit=0,
            figure=max(COVERED - mean(held), 0.0) if held else None, note=f"{sum(held)} of {len(held)} hold"),
    ]  # fmt: skip


def _can_be_held(effect: dict[str, Any]) -> bool:
    """Whether it was measured undisturbed, where the program differs: such an interval can be wrong."""
    known = effect["measured"] is not None and effect.get("predicted_low") is not None  # older rows have none
    return known and effect["measured"] != 1 and not effect.get("disturbance")


def _row(effect: Effect, other: Effect | None) -> dict[str, Any]:
    first, again = effect.measured_among, None if other is None else other.measured_among
    seen = None if first is None else of_both(first, again)
    disturbance = effect.disturbance or ("" if other is None else other.disturbance)
    return {
        "pass": effect.name,
        "predicted": None if effect.among is None else effect.among.value,
        "predicted_low": None if effect.among is None else effect.among.low,
        "predicted_high": None if effect.among is None else effect.among.high,
        "measured": None if seen is None else seen.value,
        "low": None if seen is None else seen.low,
        "high": None if seen is None else seen.high,
        "processes": [None if one is None else one.value for one in (first, again)],
        "disturbance": disturbance,
        "beyond_doubt": again is not None and seen is not None and seen.beyond_doubt and not disturbance,
        "why": effect.why,
    }
