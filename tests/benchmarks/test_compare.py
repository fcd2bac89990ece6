"""Two result files side by side: what changed, what got worse, and what says nothing."""

from __future__ import annotations

import copy
import json
import re
from pathlib import Path
from typing import Any

import pytest

from benchmarks import compare
from benchmarks.compare import NotComparableError
from tests.support.golden import golden, raises


def interval(median: float, half: float = 0.05) -> dict[str, float]:
    return {"median": median, "low": median - half, "high": median + half, "n": 12}


def result(**arguments: Any) -> dict[str, Any]:
    row = {
        "case": "bert, training",
        "model": "bert",
        "mode": "training",
        "speedup": interval(1.2),
        "programs": {"kernels": 62, "bytes_moved": 1000, "steps_us": 10.0},
        "waterfall": [
            {"after": "fuse_maps", "kernels": 70, "gain": interval(1.5)},
            {"after": "fuse_subgraphs", "kernels": 62, "gain": interval(1.1)},
        ],
    }
    return {
        "benchmark": "networks",
        "machine": {"cpu": "Xeon", "cores": 2, "commit": "abc"},
        "arguments": {"quick": False, **arguments},
        "rows": [row],
    }


def test_equal_files_have_no_changes():
    assert compare.compare(result(), result()) == ([], [])


def test_a_count_that_grew_is_worse_and_one_that_fell_is_not():
    after = result()
    after["rows"][0]["programs"] |= {"kernels": 60, "bytes_moved": 1100}
    changes, _ = compare.compare(result(), after)
    assert [(c.what, c.worse) for c in changes] == [
        ("bert, training: programs kernels", False),
        ("bert, training: programs bytes_moved", True),
    ]
    for change, figures in zip(changes, (("62", "60"), ("1000", "1100")), strict=True):
        assert all(figure in change.text for figure in figures)


def test_ratios_change_where_their_intervals_do_not_touch():
    after = result()
    after["rows"][0]["speedup"] = interval(1.25)
    assert compare.compare(result(), after)[0] == []
    after["rows"][0]["speedup"] = interval(1.1, 0.04)
    (change,) = compare.compare(result(), after)[0]
    assert all(figure in change.text for figure in ("1.200", "1.100"))
    assert not change.worse, "a time is no count: only the compiler's own figures decide"


def test_passes_are_compared_by_name():
    after = result()
    del after["rows"][0]["waterfall"][0]
    after["rows"][0]["waterfall"][0]["gain"] = interval(2.0)
    (change,) = compare.compare(result(), after)[0]
    assert change.what == "bert, training: waterfall fuse_subgraphs gain"


def test_times_of_two_machines_are_not_compared_but_counts_are():
    after = result()
    after["machine"]["cores"] = 8
    after["rows"][0] |= {"speedup": interval(9.0)}
    after["rows"][0]["programs"]["kernels"] = 63
    changes, notes = compare.compare(result(), after)
    assert [change.what for change in changes] == ["bert, training: programs kernels"]
    assert notes == [golden()]
    assert all(fact in notes[0] for fact in ("times", "cores 2", "8"))


def test_cases_of_one_file_are_named():
    after = result()
    after["rows"].append({**copy.deepcopy(after["rows"][0]), "case": "mish, training", "model": "mish"})
    assert compare.compare(result(), after) == ([], ["only after: mish, training"])


@pytest.mark.parametrize(
    ("change", "facts"),
    [
        ({"benchmark": "blocks"}, ["networks", "blocks"]),
        ({"arguments": {"quick": True}}, ["quick", "False", "True"]),
        ({"rows": [{"case": "bert, inference"}]}, ["bert, training", "bert, inference"]),
    ],
)
def test_files_that_say_nothing_about_each_other_are_refused(change: dict[str, Any], facts: list[str]):
    with raises(NotComparableError, *facts):
        compare.compare(result(), result() | change)


def test_the_exit_code_says_whether_a_count_got_worse(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    before, after = tmp_path / "before.json", tmp_path / "after.json"
    before.write_text(json.dumps(result()), encoding="utf-8")
    worse = result()
    worse["rows"][0]["programs"]["kernels"] = 63
    after.write_text(json.dumps(worse), encoding="utf-8")
    assert compare.main([str(before), str(after)]) == 1
    said = capsys.readouterr().out.splitlines()[-1]
    assert said == golden()
    assert re.findall(r"\d+", said) == ["1", "1"]
    assert compare.main([str(after), str(before)]) == 0
    assert compare.main([str(before), str(before)]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == golden()


@pytest.mark.parametrize("text", ["no json", "[]", '{"rows": []}'])
def test_a_file_that_no_benchmark_wrote_is_refused(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    file = tmp_path / "other.json"
    file.write_text(text, encoding="utf-8")
    assert compare.main([str(file), str(file)]) == 2
    said = capsys.readouterr().err
    assert said.partition(": ")[0] == golden()
    assert str(file) in said
