"""The benchmark of predictions: what is judged, and profiles that are kept to predict from again."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.explore import efficacy, quickness
from benchmarks.explore.__main__ import main
from benchmarks.explore.cases import Case, cases
from benchmarks.explore.judged import judged
from benchmarks.explore.predicted import regrets_of
from benchmarks.explore.profiles import load_profiles, predicted, save_profiles
from daceml.exploration.effects import Ratio
from daceml.tuning.machine_speeds import Machine
from daceml.tuning.step_features import StepFacts, modelled_us
from daceml.tuning.step_times import StepTimes
from daceml.tuning.variant import Variant

MACHINE = Machine(
    threads=2, memory_bytes_per_s=1e10, cached_bytes_per_s=1e11, exponentials_per_s=1e9,
    product_flops_per_s=1e11, region_us=5.0, call_us=1.0, logarithms_per_s=5e8,
    error_functions_per_s=4e8, divisions_per_s=1e10, powers_per_s=2e8, additions_per_s=2e9,
    streamed_bytes_per_s=2e10, levels=((10**6, 1e11), (10**8, 1e10)),
)  # fmt: skip


def row(name: str, predicted_ms: float, measured_ms: float, within: float = 0.1) -> dict[str, Any]:
    return {
        "variant": name, "predicted_ms": predicted_ms,
        "low_ms": predicted_ms * (1 - within), "high_ms": predicted_ms * (1 + within),
        "measured_ms": measured_ms,
        "measured_low_ms": measured_ms * 0.99, "measured_high_ms": measured_ms * 1.01,
    }  # fmt: skip


def case(*rows: dict[str, Any], wanted: int = 3, alone: float = 1.0, of_three: float = 1.0) -> dict[str, Any]:
    ratios = {"alone": alone, "of_three": of_three}
    regrets = {name: {"ratio": r, "low": r - 0.02, "high": r + 0.02} for name, r in ratios.items()}
    return {"case": "net, inference", "wanted": wanted, "variants": list(rows), "regrets": regrets}


def figures(found: dict[str, Any]) -> dict[str, float | None]:
    return {bar.name.removeprefix("explore: "): bar.figure for bar in judged([found])}


def test_predictions_are_judged_beside_what_was_measured():
    right = figures(case(row("standard recipe", 10, 10), row("a", 5, 5.2), row("b", 20, 19)))
    assert right["mean error of predictions"] == pytest.approx((0.2 / 5.2 + 1 / 19) / 2)
    assert right["share of pairs apart beyond doubt that are in the wrong order"] == 0
    assert right["regret of choosing by prediction, mean"] == 0
    assert right["intervals that hold, beyond 95 %"] == pytest.approx(0.05)
    assert right["cases with fewer variants than asked for"] == 0


def test_a_wrong_order_costs_its_regret():
    rows = row("standard recipe", 10, 10), row("a", 5, 20), row("b", 12, 8)
    wrong = case(*rows, wanted=12, alone=2.5, of_three=1.05)
    found = figures(wrong)
    assert found["share of pairs apart beyond doubt that are in the wrong order"] == 1
    assert found["regret of choosing by prediction, mean"] == pytest.approx(1.5)
    assert found["regret of measuring three, beyond the interval"] == pytest.approx(0.03)
    assert figures(case(*rows, alone=0.99))["regret of choosing by prediction, mean"] == 0
    assert found["intervals that hold, short of 85 %"] == pytest.approx(0.85)
    assert found["cases with fewer variants than asked for"] == 1


def test_cases_of_twelve_variants_have_to_span_something():
    alike = row("standard recipe", 10, 10), row("a", 11, 11), row("b", 12, 12)
    name = "cases of twelve variants that span less than 1.3 times"
    assert figures(case(*alike, wanted=12))[name] == 1
    assert figures(case(*alike, row("c", 14, 14), wanted=12))[name] == 0
    assert figures(case(*alike, wanted=4))[name] is None  # which is no bar that is met


def test_nothing_measured_meets_no_bar():
    (bar,) = judged([])
    assert bar.figure is None and not bar.met


def test_effects_count_where_they_are_beyond_doubt():
    def effect(name: str, predicted_ratio: float, measured: float, sure: bool = True) -> dict[str, Any]:
        return {"pass": name, "predicted": predicted_ratio, "measured": measured, "beyond_doubt": sure}

    rows = [
        {
            "case": "effects, net",
            "effects": [effect("a", 0.8, 0.75), effect("b", 1.1, 0.9), effect("c", 2.0, 0.5, sure=False)],
        }
    ]
    few, kinds, signs, sizes, held = efficacy.judged(rows)
    assert (few.figure, kinds.figure, signs.figure, signs.note) == (13, 4 + 3, 1, "b")
    assert sizes.figure == pytest.approx(0.2) and sizes.note == "1 of 2 within"
    assert held.figure is None, "rows of an earlier form have no intervals"


def test_predicted_intervals_hold_what_was_measured_undisturbed():
    def effect(measured: float, disturbance: str = "") -> dict[str, Any]:
        interval = {"predicted": 0.8, "predicted_low": 0.7, "predicted_high": 0.9}
        return {
            "pass": "a", "measured": measured, "beyond_doubt": False, "disturbance": disturbance, **interval
        }  # fmt: skip

    found = [effect(0.75), effect(0.95), effect(1.0), effect(0.5, "others used 60 %")]
    *_, held = efficacy.judged([{"case": "effects, net", "effects": found}])
    assert held.figure == pytest.approx(0.3) and held.note == "1 of 2 hold" and not held.met


def test_an_effect_is_there_where_two_processes_agree():
    slower = Ratio(value=1.04, low=1.01, high=1.08)
    for again, sure in ((Ratio(value=1.02, low=1.005, high=1.04), True), (slower.inverse(), False)):
        both = efficacy.of_both(slower, again)
        assert (both.low, both.high) == (min(slower.low, again.low), max(slower.high, again.high))
        assert again.value < both.value < slower.value and both.beyond_doubt is sure
    assert efficacy.of_both(slower, None) == slower


def test_programs_that_differ_are_counted():
    told = {"different": 61, "predicted": 90, "seconds": 100.0, "compiled": 5}
    assert all(bar.met for bar in quickness.judged([told]))
    assert not quickness.judged([told | {"different": 40}])[0].met


def test_quick_cases_are_few_and_all_have_names():
    assert len(cases(quick=True)) == 2 < len(cases(quick=False))
    assert len({one.title for one in cases(quick=False)}) == len(cases(quick=False))


def test_profiles_are_kept_and_predicted_from_again(tmp_path: Path):
    slow = StepFacts(key="slow", kind="kernel", pieces=4, unique_bytes=10**7, vector_operations=10**6)
    other = StepFacts(
        key="other", kind="kernel", pieces=4, unique_bytes=2 * 10**7, vector_operations=2 * 10**6
    )
    lowered = {Variant(): (slow,), Variant(freeze=True): (slow, other)}
    other_us = 1000 * modelled_us(MACHINE, other) / modelled_us(MACHINE, slow)
    took = {Variant(): (1000.0,), Variant(freeze=True): (1000.0, other_us)}
    programs: Any = SimpleNamespace(
        profiles=took,
        times=StepTimes(MACHINE),
        around_us=10.0,
        lowered=lambda variant: SimpleNamespace(facts=lowered[variant], calls=1.0),
        measure=lambda variant: SimpleNamespace(ms=(sum(took[variant]) + 10) / 1e3),
    )
    made = Case(name="net", training=False, variants=2)
    save_profiles(tmp_path / "steps.jsonl", made, programs)
    found = load_profiles(tmp_path / "steps.jsonl")
    assert [one.variant for one in found] == ["standard recipe", "frozen weights"]
    assert found[0].machine == MACHINE and found[1].steps == (slow, other)
    ((one, ratio, holds),) = predicted(found, made.title, others=False)
    assert one.variant == "frozen weights" and ratio == pytest.approx(1, rel=0.1) and holds


def test_rows_of_a_run_that_was_stopped_are_judged(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    journal = tmp_path / "run.jsonl"
    rows = row("standard recipe", 10, 10), row("a", 5, 5.2), row("b", 20, 19)
    journal.write_text(json.dumps(case(*rows) | {"case": "mish, inference"}) + "\n")
    assert main(["--part", "variants", "--judge", "--check", "--journal", str(journal)]) == 1
    out = capsys.readouterr().out
    assert any("mean error" in line and "0.04555" in line for line in out.splitlines())
    assert "2 variants of 1 cases" in out and list(tmp_path.iterdir()) == [journal]


def test_who_would_be_chosen_is_measured_again_beside_the_best():
    standard, fused, frozen = Variant(), Variant(depth="loops"), Variant(freeze=True)
    measured = {standard: row("a", 5, 20), fused: row("b", 10, 10), frozen: row("c", 12, 8)}
    asked: list[tuple[Variant, Variant]] = []

    def beside(variant: Variant, other: Variant) -> SimpleNamespace:
        asked.append((variant, other))
        return SimpleNamespace(ratio=2.4, ratio_low=2.3, ratio_high=2.5)

    programs: Any = SimpleNamespace(beside=beside)
    found = regrets_of(programs, measured)
    assert asked == [(standard, frozen)]  # of three, the best was measured among them
    assert found == {
        "alone": {"ratio": 2.4, "low": 2.3, "high": 2.5},
        "of_three": {"ratio": 1.0, "low": 1.0, "high": 1.0},
    }
