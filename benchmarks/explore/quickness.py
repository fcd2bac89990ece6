"""How long an exploration of many variants takes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from benchmarks.bars import Bar
from benchmarks.explore.cases import Case
from daceml.exploration.results import Row
from daceml.exploration.variant_search import explored
from daceml.tuning.model_call import Subject

FEWEST, SECONDS, COMPILED = 60, 180.0, 5


def exploration_row() -> dict[str, Any]:
    """Of the BERT layer, in calls as they are and of half as many samples."""
    module, inputs = Case(name="bert", training=False, variants=0).subject()
    subject = Subject(module, inputs, {}, training=False)
    batches = (max(subject.samples // 2, 1),)
    found = explored(subject, budget_s=SECONDS * 0.9, batches=batches)
    return {
        "case": "exploration, bert", "predicted": found.predicted, "compiled": found.compiled,
        "different": sum(_different(row) for row in found.rows),
        "seconds": found.spent_s, "complete": found.complete, "winner": found.best.variant.title,
    }  # fmt: skip


def _different(row: Row) -> bool:
    return row.predicted_ms is not None and row.outcome != "same program"


def judged(rows: Sequence[dict[str, Any]]) -> list[Bar]:
    """Enough variants, soon, with few compilations; no bar where nothing was explored."""
    return [bar for row in rows for bar in _judged(row)]


def _judged(row: dict[str, Any]) -> list[Bar]:
    return [
        Bar(name="exploration, bert: variants short of 60", figure=max(FEWEST - row["different"], 0), limit=0,
            note=f"{row['different']} programs that differ, of {row['predicted']} predicted"),
        Bar(name="exploration, bert", figure=row["seconds"], limit=SECONDS, unit="s"),
        Bar(name="exploration, bert: variants compiled and measured", figure=row["compiled"], limit=COMPILED),
    ]  # fmt: skip
