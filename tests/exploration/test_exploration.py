"""Records of explorations: stored, read again, shown."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from daceml.errors import ExplorationError
from daceml.exploration.exploration import Exploration, Row, Times
from daceml.exploration.variant import Variant
from daceml.report.exploration_text import exploration_text


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
    assert told["variants"][1]["promises"] == ["weights must not change any more"]


def test_pytorch_is_told_beside_the_standard_recipe(tmp_path: Path):
    found = replace(FOUND, eager=times(1.04))
    found.save(tmp_path / "found.json")
    assert Exploration.load(tmp_path / "found.json") == found
    said = " ".join(exploration_text(found).split())
    assert "PyTorch itself took 10.4 ms, 1.040 [1.019, 1.061] of the standard recipe's time" in said
    assert "PyTorch" not in exploration_text(FOUND)


def test_errors_are_those_of_what_was_measured_besides_the_standard():
    assert FROZEN.error == pytest.approx(0.1)
    assert FOUND.mean_error == pytest.approx(0.1)
    assert replace(FOUND, rows=(STANDARD,), winner=0).mean_error is None


def test_the_text_has_the_best_and_counts_the_rest():
    text = exploration_text(FOUND)
    assert "* frozen weights" in text
    assert "0.800" in text and "+10%" in text
    assert "and 18 more, predicted to be worse" in text
    told = (
        "the others by what they take, measured or else predicted; [ ] holds nine of ten; what was measured"
    )
    assert told in " ".join(text.split())
    assert "1 could not be made" in text and "it cannot be" not in text
    assert "computed something else" not in text
    said = " ".join(text.split())
    assert said.endswith(
        "off by 10.0% on average. Before anything was measured, the standard recipe was predicted to take 11 "
        "ms, and it took 10"
    )
    assert "USD" not in text and "the search ended" not in text
    assert "whoever takes it accepts: weights must not change any more" in " ".join(text.split())
    whole = exploration_text(FOUND, every=True)
    assert "choice 39" in whole and "it cannot be" in whole


def test_the_text_says_why_a_search_ended_what_is_paid_and_that_a_machine_was_busy():
    priced = replace(OTHERS[0], usd_per_million=12.5)
    found = replace(
        FOUND, rows=(STANDARD, FROZEN, priced), complete=False, ended="its budget ended", slowness=3.2
    )
    text = " ".join(exploration_text(found).split())
    assert "ended before the rest was known to be worse: its budget ended;" in text
    assert "USD a million" in text and "12.5" in text
    assert "This machine took 3.2 times as long as in its best hour" in text
    assert "best hour" not in exploration_text(replace(found, slowness=1.4))
    told = " ".join(exploration_text(replace(found, slowness=1.4, foreign_share=0.5)).split())
    assert (
        "Other programs used 50% of this machine meanwhile: none of this says much; explore once more when "
        "the machine is idle best by time: frozen weights" in told
    )


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"form": 1, "variants": [{}]}', '{"form": 1}'])
def test_other_files_are_refused(tmp_path: Path, content: str):
    file = tmp_path / "other.json"
    file.write_text(content)
    with pytest.raises(ExplorationError, match=r"other\.json is no exploration"):
        Exploration.load(file)


def test_a_form_of_a_later_time_is_refused(tmp_path: Path):
    FOUND.save(tmp_path / "found.json")
    told = json.loads((tmp_path / "found.json").read_text())
    (tmp_path / "later.json").write_text(json.dumps({**told, "form": 2}))
    with pytest.raises(ExplorationError, match="is of form 2"):
        Exploration.load(tmp_path / "later.json")
