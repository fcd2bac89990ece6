"""What is said of a search: a choice is only what was measured."""

from __future__ import annotations

from dataclasses import replace

from daceml.report.explanation.search_text import headline, search_text
from daceml.tuning.decision import Decision, Measured, Trial
from tests.support.golden import golden

STANDARD = Trial(choices=(), outcome="standard recipe", predicted_ms=2.0)
LEFT = Trial(choices=("loops apart",), outcome="budget used up")


def test_a_search_without_time_says_that_it_has_measured_nothing():
    found = Decision(choices=(), trials=(STANDARD, LEFT), spent_s=12.3, budget_s=12.0, complete=False)
    said = headline(found)
    assert said == golden() and all(fact in said for fact in ("2", "0", "12.3 s", "12 s"))
    assert LEFT.outcome in search_text(found) and "loops apart" in search_text(found)


def test_what_was_measured_is_chosen():
    measured = Measured(ms=1.5, ratio=0.75, low=0.7, high=0.8, rounds=12)
    faster = Trial(choices=("loops apart",), outcome="chosen", predicted_ms=1.0, measured=measured)
    found = Decision(
        choices=("loops apart",), trials=(STANDARD, faster), spent_s=9.0, budget_s=12.0, complete=True
    )
    said, stopped = headline(found), headline(replace(found, complete=False))
    assert said == golden() and all(fact in said for fact in ("loops apart", "2", "1", "9.0 s", "12 s"))
    assert stopped == golden() and "loops apart" in stopped
    assert "0.750 [0.700, 0.800]" in search_text(found)
