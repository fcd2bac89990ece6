"""What an exploration has found, as plain text."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence

from daceml.exploration.results import Exploration, Objective, Outcome, Row
from daceml.text_tables import WIDTH, busy, in_millions, render, table

_SHOWN = 24
_TOLD = ("refused", "results differ")
_COUNTED: Mapping[Outcome, str] = {
    "same program": "gave the program of another variant",
    "refused": "could not be built",
    "results differ": "computed other results",
}
_ORDER: Mapping[Objective, str] = {
    "time": "their time, measured or else predicted",
    "memory": "their memory",
    "cost": "the cost of a million steps",
}


def exploration_text(found: Exploration, *, every: bool = False) -> str:
    """A headline, a row for each variant, the best first, and what the winner asks for.

    Args:
        every: all variants, not only the best.
    """
    untold = ("same program", *_TOLD)
    known = [row for row in found.rows if row.best_known_ms is not None and row.outcome not in untold]
    shown = known if every else _best(known, found.best)
    priced = any(row.usd_per_million is not None for row in known)
    columns = ("variant", "predicted ms", "measured", "off", "ratio", "memory MB", "moved MB")
    rows = table(*columns, *(["USD"] if priced else []), details=("off", "moved MB"))
    for row in shown:
        mark = "* " if row is found.best else ""
        price = "" if row.usd_per_million is None else f"{row.usd_per_million:.3g}"
        figures = (mark + row.variant.title, *_figures(row), *([price] if priced else []))
        rows.add_row(*figures)
    lines = _wrapped(_headline(found), indent=0)
    if found.disturbance:
        lines += _wrapped(busy(found.disturbance, "explore once more"), indent=0)
    lines += ["", render(rows), ""]
    left = len(known) - len(shown)
    if left:
        lines.append(f"  and {left} more, predicted to be worse")
    lines += _wrapped(_legend(found), indent=2)
    lines += _required(shown)
    lines += _disagreeing(known)
    lines += _counted(found.rows)
    for row in found.rows:
        if row.outcome in _TOLD and (every or row.predicted_ms is not None):
            lines += _wrapped(f"{row.variant.title}, {row.outcome}: {row.why}", indent=2)
    lines += _wrapped(_chosen(found), indent=0)
    return "\n".join(lines)


def _headline(found: Exploration) -> str:
    step = "training step" if found.training else "call"
    rest = "" if found.complete else "; the search ended before the rest was known to be worse"
    rest += f": {found.ended}" if found.ended else ""
    return (
        f"{found.model}, a {step} with {found.inputs}: {found.predicted} variants predicted, {found.compiled}"
        f" measured in {found.spent_s:.0f} s of {found.budget_s:g} s{rest}; {found.machine}"
    )


def _legend(found: Exploration) -> str:
    text = (
        f"the standard recipe, then the others by {_ORDER[found.objective]}; [ ]: 90 % interval; "
        "ratio: measured time over the standard recipe's"
    )
    if any(row.usd_per_million is not None for row in found.rows):
        text += "; USD: cost of a million steps"
    if found.compiled > 1:
        text += (
            "; measured variants keep their first prediction, the others were predicted again with the "
            "measurements"
        )
    return text


def _chosen(found: Exploration) -> str:
    best = found.best
    gain = ""
    if best.measured is not None and best.outcome != "standard recipe":
        seen = best.measured
        gain = (
            f", {seen.ratio:.3f} [{seen.ratio_low:.3f}, {seen.ratio_high:.3f}] of the standard recipe's time"
        )
    text = f"best by {found.objective}: {best.variant.title}{gain}"
    if best.variant.promises:
        text += f"; it requires: {', '.join(best.variant.promises)}"
    if found.eager is not None:
        seen = found.eager
        text += (
            f". PyTorch itself took {seen.ms:.4g} ms, {seen.ratio:.3f} [{seen.ratio_low:.3f}, "
            f"{seen.ratio_high:.3f}] of the standard recipe's time"
        )
    if found.mean_error is not None and not found.disturbance:
        text += f". Predictions of the other measured variants were off by {found.mean_error:.1%} on average"
    first = found.standard
    if first.predicted_ms is not None and first.measured is not None:
        text += (
            f". Before anything was measured, the standard recipe was predicted to take "
            f"{first.predicted_ms:.4g} ms, and it took {first.measured.ms:.4g}"
        )
    return text


def _best(known: Sequence[Row], best: Row) -> list[Row]:
    """The standard variant, all that were measured, and the most promising of the others."""
    first = [row for row in known if row.measured is not None or row is best]
    more = [row for row in known if row not in first]
    chosen = {id(row) for row in (*first, *more[: max(_SHOWN - len(first), 0)])}
    return [row for row in known if id(row) in chosen]


def _figures(row: Row) -> tuple[str, ...]:
    predicted = measured = off = ratio = ""
    if row.predicted_ms is not None and row.low_ms is not None and row.high_ms is not None:
        predicted = f"{row.predicted_ms:.4g} [{row.low_ms:.3g}, {row.high_ms:.3g}]"
    if row.measured is not None:
        measured, ratio = f"{row.measured.ms:.4g}", f"{row.measured.ratio:.3f}"
        if row.error is not None:
            off = f"{row.error:+.0%}"
    memory = "" if row.memory_bytes is None else in_millions(row.memory_bytes)
    moved = "" if row.moved_bytes is None else in_millions(row.moved_bytes)
    return predicted, measured, off, ratio, memory, moved


def _required(rows: Sequence[Row]) -> list[str]:
    """What variants require, each requirement once."""
    promises = dict.fromkeys(promise for row in rows for promise in row.variant.promises)
    return [
        line
        for promise in promises
        for line in _wrapped(
            f"{promise}, with: {', '.join(r.variant.title for r in rows if promise in r.variant.promises)}",
            indent=2,
        )
    ]


def _disagreeing(rows: Sequence[Row]) -> list[str]:
    """What was measured outside the interval that was predicted, in a sentence."""
    outside = [f"{row.variant.title} ({row.error:+.0%})" for row in rows if row.disagrees]
    if not outside:
        return []
    said = f"measured outside the predicted interval, with the error of the prediction: {', '.join(outside)}"
    return _wrapped(said, indent=2)


def _counted(rows: Sequence[Row]) -> list[str]:
    counts = Counter(row.outcome for row in rows)
    return [f"  {counts[outcome]} {told}" for outcome, told in _COUNTED.items() if counts[outcome]]


def _wrapped(text: str, *, indent: int) -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent=" " * indent, subsequent_indent=" " * (indent + 2))
