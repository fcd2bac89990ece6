"""Predictions beside measurements: errors, order, the price of choosing by prediction, and intervals."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations
from statistics import mean
from typing import Any

from benchmarks.bars import Bar
from benchmarks.explore.cases import MANY

ERROR, DISORDER, REGRET, MEASURED_REGRET = 0.15, 0.1, 0.05, 0.01
COVER_LOW, COVER_HIGH = 0.85, 0.95
SPAN = 1.3
"""How many times as long as the fastest variant the slowest takes, in cases with `MANY` of them."""

Row = dict[str, Any]


def judged(cases: Sequence[Row]) -> list[Bar]:
    """Over all cases; the standard variant is known and counts for no error and no interval."""
    others = [row for case in cases for row in _others(case)]
    if not others:
        return [Bar(name="explore: variants that were measured", figure=None, limit=0)]
    errors = [abs(row["predicted_ms"] / row["measured_ms"] - 1) for row in others]
    covered = mean(row["low_ms"] <= row["measured_ms"] <= row["high_ms"] for row in others)
    pairs = [pair for case in cases for pair in _apart(case["variants"])]
    disorder = mean(_wrong(*pair) for pair in pairs) if pairs else None
    alone = [max(case["regrets"]["alone"]["ratio"] - 1, 0.0) for case in cases]
    three = [_beyond_interval(case["regrets"]["of_three"]) for case in cases]
    note = f"{len(others)} variants of {len(cases)} cases"
    spans = [_span(case) for case in cases]
    few = [case["case"] for case in cases if len(case["variants"]) < case.get("wanted", 0)]
    spanned = [(case["case"], span) for case, span in zip(cases, spans, strict=True) if _is_main(case)]
    narrow = [title for title, span in spanned if span < SPAN]
    return [
        Bar(name="explore: mean error of predictions", figure=mean(errors), limit=ERROR, note=note),
        Bar(
            # tau = 1 - 2 * discordant share
            name="explore: share of pairs apart beyond doubt that are in the wrong order",
            figure=disorder, limit=DISORDER, note=f"{len(pairs)} pairs; tau is one minus twice this",
        ),
        Bar(name="explore: regret of choosing by prediction, mean", figure=mean(alone), limit=REGRET,
            note=f"worst {max(alone):.3f}"),
        Bar(name="explore: regret of measuring three, beyond the interval", limit=MEASURED_REGRET,
            figure=mean(three), note=f"worst {max(three):.3f}"),
        Bar(name="explore: intervals that hold, short of 85 %", figure=max(COVER_LOW - covered, 0.0), limit=0,
            note=f"{covered:.1%} hold"),
        Bar(name="explore: intervals that hold, beyond 95 %", figure=max(covered - COVER_HIGH, 0.0), limit=0,
            note=f"{covered:.1%} hold"),
        Bar(name="explore: cases with fewer variants than asked for", figure=len(few), limit=0,
            note="; ".join(few)),
        Bar(name="explore: cases of twelve variants that span less than 1.3 times", limit=0,
            figure=len(narrow) if spanned else None,
            note="; ".join(narrow) or f"{len(spanned)} cases; of all {len(cases)} at least {min(spans):.2f}"),
    ]  # fmt: skip


def _others(case: Row) -> list[Row]:
    return [row for row in case["variants"] if row["variant"] != "standard recipe"]


def _apart(variants: Sequence[Row]) -> Iterable[tuple[Row, Row]]:
    """Pairs whose intervals have nothing in common, the faster first."""
    for one, other in combinations(variants, 2):
        first, second = sorted((one, other), key=lambda row: row["measured_ms"])
        if first["measured_high_ms"] < second["measured_low_ms"]:
            yield first, second


def _wrong(faster: Row, slower: Row) -> bool:
    return faster["predicted_ms"] >= slower["predicted_ms"]


def _beyond_interval(regret: dict[str, float]) -> float:
    """What is left of a regret that its own interval does not explain."""
    return max(regret["ratio"] - 1 - (regret["high"] - regret["low"]) / 2, 0.0)


def _is_main(case: Row) -> bool:
    """Whether it has as many variants as those must differ by `SPAN`."""
    return case.get("wanted", 0) >= MANY


def _span(case: Row) -> float:
    times = [row["measured_ms"] for row in case["variants"]]
    return max(times) / min(times)
