"""Bars, how they print, and the exit code."""

from __future__ import annotations

import io

from benchmarks.bars import Bar, report


def test_a_bar_is_met_at_its_limit():
    assert Bar(name="x", figure=15.0, limit=15.0).met
    assert not Bar(name="x", figure=15.1, limit=15.0).met
    assert not Bar(name="x", figure=float("nan"), limit=15.0).met


def test_what_was_not_measured_is_not_met():
    bar = Bar(name="relu", figure=None, limit=15.0, unit="us", note="too few quiet rounds")
    assert not bar.met
    line = bar.line()
    assert line.startswith("MISSED")
    assert all(fact in line for fact in ("relu", "not measured", "15 us", "too few quiet rounds"))


def test_the_report_prints_every_bar_and_fails_on_a_miss():
    stream = io.StringIO()
    bars = [Bar(name="a", figure=1.25, limit=1.5), Bar(name="b", figure=200.0, limit=100, unit="us")]
    assert report(bars, stream=stream) == 1
    met, missed, summary = stream.getvalue().splitlines()
    assert met.startswith("met") and all(fact in met for fact in ("a:", "1.25", "1.5"))
    assert missed.startswith("MISSED") and all(fact in missed for fact in ("b:", "200 us", "100 us"))
    assert "1 of 2" in summary
    assert report(bars[:1], stream=io.StringIO()) == 0


def test_a_bar_as_json_says_whether_it_was_met():
    assert Bar(name="a", figure=1.0, limit=2.0).as_json() == {
        "name": "a", "figure": 1.0, "limit": 2.0, "unit": "", "note": "", "met": True,
    }  # fmt: skip
