"""What is said of a search: a choice is only what was measured."""

from __future__ import annotations

from dataclasses import replace

from daceml.frontend.search.decision import Decision, Measured, Trial
from daceml.report.search_text import headline, search_text

STANDARD = Trial(choices=(), outcome="standard recipe", predicted_ms=2.0)
LEFT = Trial(choices=("loops apart",), outcome="budget used up")


def test_a_search_without_time_says_that_it_has_measured_nothing():
    found = Decision(choices=(), trials=(STANDARD, LEFT), spent_s=12.3, budget_s=12.0, complete=False)
    assert headline(found).startswith(
        "the standard recipe stays, as there was no time to measure another one; 2 candidates, 0 measured in "
        "12.3 s of 12 s, and the budget was used up"
    )
    assert "budget used up: loops apart" in search_text(found)


def test_what_was_measured_is_chosen():
    measured = Measured(ms=1.5, ratio=0.75, low=0.7, high=0.8, rounds=12)
    faster = Trial(choices=("loops apart",), outcome="chosen", predicted_ms=1.0, measured=measured)
    found = Decision(
        choices=("loops apart",), trials=(STANDARD, faster), spent_s=9.0, budget_s=12.0, complete=True
    )
    assert headline(found).startswith("loops apart is chosen; 2 candidates, 1 measured in 9.0 s of 12 s;")
    stopped = replace(found, complete=False)
    assert headline(stopped).startswith("loops apart is chosen;")
    assert "0.750 [0.700, 0.800]" in search_text(found)
