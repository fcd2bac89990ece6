"""What compiled networks consist of is what is committed, and a difference is a sentence."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import counts
from benchmarks.counts import BASELINE, Counts, Parts, cases, counts_of, difference_bar, load, save, verdict
from tests.support.golden import golden, raises
from tests.support.sampling import sampled

SEEN: Parts = {"inference": Counts(kernels=4, bytes_moved=800, conflict_edges=0, generated_lines=90)}


@pytest.mark.parametrize("case", sampled(cases(), "mbconv", "bert"))
def test_a_program_consists_of_what_is_committed(case: str):
    spec, train_mode = cases()[case]
    why = verdict(case, load().get(case), counts_of(spec, train_mode=train_mode))
    assert not why, f"\n{why}"


def test_the_baseline_has_every_case_and_no_other():
    assert sorted(json.loads(BASELINE.read_text(encoding="utf-8"))) == sorted(cases())


def test_what_grew_is_named_with_both_figures_and_the_way_to_renew():
    worse: Parts = {"inference": replace(SEEN["inference"], kernels=5, bytes_moved=700)}
    said = verdict("bert", SEEN, worse)
    assert said == golden()
    assert all(fact in said for fact in ("bert", "kernels", "4", "5", "800", "700", "make baseline"))
    assert not difference_bar("bert", SEEN, worse).met


def test_what_got_better_has_to_be_committed_too():
    better: Parts = {"inference": replace(SEEN["inference"], generated_lines=80)}
    said = verdict("bert", SEEN, better)
    assert said == golden()
    assert all(fact in said for fact in ("bert", "generated lines", "90", "80", "make baseline"))
    assert not difference_bar("bert", SEEN, better).met


def test_a_program_that_has_appeared_is_worse():
    more: Parts = {**SEEN, "backward": SEEN["inference"]}
    assert "backward: kernels grew from 0 to 4" in verdict("bert", SEEN, more)


def test_equal_counts_need_no_words():
    assert verdict("bert", SEEN, SEEN) == ""
    assert difference_bar("bert", SEEN, SEEN).met


def test_a_case_without_a_baseline_meets_nothing():
    assert verdict("bert", None, SEEN).startswith("bert has no baseline\n  fix: make baseline")
    assert not difference_bar("bert", None, SEEN).met


def test_a_baseline_is_read_as_it_was_written(tmp_path: Path):
    file = tmp_path / "baseline" / "counts.json"
    save({"bert": SEEN, "mish": SEEN}, file)
    assert load(file) == {"bert": SEEN, "mish": SEEN}


@pytest.mark.parametrize("text", ["{", "[]", '{"bert": {"inference": {"kernels": 1}}}'])
def test_a_file_that_is_no_baseline_says_how_to_make_one(text: str, tmp_path: Path):
    file = tmp_path / "counts.json"
    file.write_text(text, encoding="utf-8")
    with raises(SystemExit, file, "make baseline", exact=False):
        load(file)


def test_a_part_of_the_cases_is_no_baseline(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit):
        counts.main(["--renew", "--only", "bert"])
    said = capsys.readouterr().err.partition("error: ")[2]
    assert said == golden()
    assert all(option in said for option in ("--renew", "--only", "--quick"))


def test_the_program_compares_what_it_is_asked_for(tmp_path: Path):
    file = tmp_path / "counts.json"
    assert counts.main(["--only", "mish", "--check", "--json", str(file)]) == 0
    found = json.loads(file.read_text(encoding="utf-8"))
    assert [row["part"] for row in found["rows"]] == ["inference", "forward", "backward"]
    assert [bar["figure"] for bar in found["bars"]] == [0]
