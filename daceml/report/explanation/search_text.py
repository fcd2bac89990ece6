"""What a search for a recipe has tried and chosen, as plain text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from daceml.text_tables import render, table, wrapped

if TYPE_CHECKING:
    from daceml.tuning.decision import Decision, Measured, Trial

_ALIKE = ("identical program", "budget used up")
"""Outcomes that are told once for all candidates that have them."""

HEADERS = ("candidate", "outcome", "predicted ms", "ms", "of standard")


def search_text(decision: Decision | None) -> str:
    """A headline, a row for each candidate, and reasons; empty where nothing was searched."""
    if decision is None:
        return ""
    rows = table(*HEADERS, left=2)
    shown = [trial for trial in decision.trials if trial.outcome not in _ALIKE]
    for trial in shown:
        rows.add_row(*row_of(trial))
    lines = [*wrapped(f"search: {headline(decision)}", indent=0), render(rows)]
    for trial in shown:
        if trial.why:
            lines += wrapped(f"{trial.name}, {trial.outcome}: {trial.why}", indent=2)
    for outcome in _ALIKE:
        names = [trial.name for trial in decision.trials if trial.outcome == outcome]
        if names:
            lines += wrapped(f"{outcome}: {', '.join(names)}", indent=2)
    return "\n".join(lines)


def headline(decision: Decision) -> str:
    """What was chosen, of how many, in which time and where."""
    measured = sum(trial.measured is not None for trial in decision.trials)
    sizes = f" for inputs {decision.sizes}" if decision.sizes else ""
    left = "" if decision.complete else ", and the budget was used up"
    chosen = f"{decision.title} is chosen"
    if left and not measured:
        chosen = f"{decision.title} stays, as there was no time to measure another one"
    return (
        f"{chosen}; {len(decision.trials)} candidates, {measured} measured in "
        f"{decision.spent_s:.1f} s of {decision.budget_s:g} s{left}; {decision.machine}{sizes}"
    )


def row_of(trial: Trial) -> tuple[str, ...]:
    """Name, outcome and figures of one candidate."""
    predicted = "" if trial.predicted_ms is None else f"{trial.predicted_ms:.4g}"
    measured = ("", "") if trial.measured is None else (f"{trial.measured.ms:.4g}", _ratio(trial.measured))
    return (trial.name, trial.outcome, predicted, *measured)


def _ratio(measured: Measured) -> str:
    if measured.low == measured.high:
        return f"{measured.ratio:.3f}"
    return f"{measured.ratio:.3f} [{measured.low:.3f}, {measured.high:.3f}]"
