"""Records of explorations: stored, read again, shown."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from daceml.errors import ExplorationError
from daceml.exploration.exploration_text import exploration_text
from daceml.exploration.results import Exploration, Row, Times
from daceml.text_tables import wide_tables
from daceml.tuning.variant import Variant
from tests.support.golden import golden, raises


def times(ratio: float) -> Times:
    return Times(
        ms=10 * ratio,
        low_ms=9.8 * ratio,
        high_ms=10.2 * ratio,
        ratio=ratio,
        ratio_low=0.98 * ratio,
        ratio_high=1.02 * ratio,
        rounds=21,
    )


STANDARD = Row(
    variant=Variant(),
    outcome="standard recipe",
    predicted_ms=11.0,
    low_ms=8.0,
    high_ms=14.0,
    measured=times(1.0),
)
FROZEN = Row(
    variant=Variant(freeze=True),
    outcome="measured",
    predicted_ms=8.8,
    low_ms=8.0,
    high_ms=9.5,
    measured=times(0.8),
    memory_bytes=2_000_000,
    moved_bytes=5_000_000,
    kernels=3,
)
OTHERS = tuple(
    Row(
        variant=Variant(choices=(f"choice {n}",)),
        outcome="predicted",
        predicted_ms=12.0 + n,
        low_ms=11,
        high_ms=20,
    )
    for n in range(40)
)
REFUSED = Row(variant=Variant(unoptimised=True), outcome="refused", why="it cannot be")
FOUND = Exploration(
    model="Net",
    inputs="x: float32 (2, 3)",
    training=False,
    objective="time",
    machine="a processor, 2 cores",
    seed=0,
    budget_s=60.0,
    spent_s=12.3,
    complete=True,
    rows=(STANDARD, FROZEN, *OTHERS, REFUSED),
    winner=1,
    compiled=2,
    predicted=42,
)


def test_what_is_saved_is_read_again(tmp_path: Path):
    FOUND.save(tmp_path / "found.json")
    assert Exploration.load(tmp_path / "found.json") == FOUND
    told = json.loads((tmp_path / "found.json").read_text())
    assert told["variants"][1]["title"] == "frozen weights"
    assert told["variants"][1]["promises"] == [*FROZEN.variant.promises] != []


def test_pytorch_is_told_beside_the_standard_recipe(tmp_path: Path):
    found = replace(FOUND, eager=times(1.04))
    found.save(tmp_path / "found.json")
    assert Exploration.load(tmp_path / "found.json") == found
    text = exploration_text(found)
    assert text == golden()
    said = " ".join(text.split())
    assert all(fact in said for fact in ("PyTorch", "10.4 ms", "1.040 [1.019, 1.061]"))
    assert "PyTorch" not in exploration_text(FOUND)


def test_errors_are_those_of_what_was_measured_besides_the_standard():
    assert FROZEN.error == pytest.approx(0.1)
    assert FOUND.mean_error == pytest.approx(0.1)
    assert replace(FOUND, rows=(STANDARD,), winner=0).mean_error is None


def test_a_measurement_outside_the_predicted_interval_is_told():
    wrong = replace(FROZEN, low_ms=8.5)
    assert wrong.disagrees and not FROZEN.disagrees and not OTHERS[0].disagrees
    text = exploration_text(replace(FOUND, rows=(STANDARD, wrong)))
    assert text == golden() and "outside the predicted interval" in text and "(+10%)" in text
    assert "outside" not in exploration_text(FOUND)


def test_the_text_has_the_best_and_counts_the_rest():
    text, whole = exploration_text(FOUND), exploration_text(FOUND, every=True)
    assert [text, whole] == [golden(), golden()]
    assert "* frozen weights" in text
    assert "0.800" in text and "+10%" not in text
    with wide_tables():
        assert "+10%" in exploration_text(FOUND)
    assert "18 more" in text and "choice 39" not in text and "choice 39" in whole
    assert "it cannot be" not in text and "it cannot be" in whole
    said = " ".join(text.split())
    assert "10.0%" in said and "11 ms" in said and "USD" not in said
    assert all(promise in said for promise in FROZEN.variant.promises)


def test_the_text_says_why_a_search_ended_what_is_paid_and_that_a_machine_was_busy():
    priced = replace(OTHERS[0], usd_per_million=12.5)
    found = replace(
        FOUND, rows=(STANDARD, FROZEN, priced), complete=False, ended="its budget ended", slowness=3.2
    )
    slow, plain = exploration_text(found), exploration_text(replace(found, slowness=1.4))
    shared = exploration_text(replace(found, slowness=1.4, foreign_share=0.5))
    assert [slow, plain, shared] == [golden(), golden(), golden()]
    said = " ".join(slow.split())
    assert all(fact in said for fact in ("its budget ended", "USD: cost of a", "12.5", "3.2 times"))
    assert "1.4 times" not in plain and "50%" not in plain
    assert "50%" in shared


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"form": 1, "variants": [{}]}', '{"form": 1}'])
def test_other_files_are_refused(tmp_path: Path, content: str):
    file = tmp_path / "other.json"
    file.write_text(content)
    with raises(ExplorationError, file, "`daceml explore --output`", exact=False):  # Python says why
        Exploration.load(file)


def test_a_form_of_a_later_time_is_refused(tmp_path: Path):
    FOUND.save(tmp_path / "found.json")
    told = json.loads((tmp_path / "found.json").read_text())
    later = tmp_path / "later.json"
    later.write_text(json.dumps({**told, "form": 2}))
    with raises(ExplorationError, later, "form 2", "form 1"):
        Exploration.load(later)
