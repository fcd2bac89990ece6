"""The campaign of bad files: its judgement on made-up outcomes, and a small one that is run."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks import robustness
from benchmarks.children import Outcome, Tell, run_cases
from benchmarks.robustness_calls import CASES
from benchmarks.robustness_models import MODELS
from benchmarks.robustness_mutations import make_file
from daceml.errors import CallError


def outcome(end: str = "", **told: str) -> Outcome:
    return Outcome(case=0, told=told, end=end, duration_s=1.0)


def test_what_happened_is_judged():
    assert robustness.verdict(outcome(verdict="refused", reason="why")) == ("refused", "why")
    assert robustness.verdict(outcome("signal 11", stage="the call")) == ("crash", "signal 11 in the call")
    assert robustness.verdict(outcome("timeout", stage="compilation")) == (
        "timeout",
        "after 1 s in compilation",
    )
    assert robustness.verdict(outcome("signal 11", ours="ran"))[0] == "no oracle", "the peer crashed"


def test_results_are_compared_with_every_peer():
    one, nan = np.ones(3, dtype=np.float32), np.array([1, np.nan, 1], dtype=np.float32)
    assert robustness.compare([one], [[one * 2], [one]]) == ("equal", "")
    assert robustness.compare([one], []) == ("no oracle", "onnxruntime refuses the file")
    assert robustness.compare([one], [[one * 2]])[0] == "wrong"
    assert robustness.compare([nan], [[one]])[0] == "wrong", "a NaN where the peer has a number"
    assert robustness.compare([one], [[nan]]) == ("equal", "")
    assert "float32 (3,) instead of float32 (1, 3)" in robustness.compare([one], [[one[None]]])[1]
    assert "1 results instead of 2" in robustness.compare([one], [[one, one]])[1]
    assert "differs in 1 of 2 elements" in robustness.compare([np.array([1, 2])], [[np.array([1, 3])]])[1]


def test_calls_may_be_refused_or_end_as_the_peers():
    x, refused = torch.ones(2), CallError("no", why="so", fix="thus")
    judge = robustness.compare_calls
    assert judge(None, refused, None, TypeError())[0] == "refused"
    assert judge(None, TypeError("a"), None, TypeError("b"))[0] == "as eager"
    assert judge(None, RecursionError(), None, TypeError())[0] == "foreign exception"
    assert judge(None, TypeError(), x, None)[0] == "foreign exception"
    assert judge(x, None, None, IndexError()) == ("wrong", "a result where the peer raises IndexError()")
    assert judge(x, None, x, None) == ("equal", "") and judge(x.numpy(), None, x, None) == ("equal", "")
    assert judge(x, None, x * 2, None)[0] == judge(x, None, x.double(), None)[0] == "wrong"


def test_every_bad_end_has_a_bar():
    rows = [
        {"verdict": v, "case": i, "done": "cut", "reason": "?"}
        for i, v in enumerate(["equal", "crash", "refused"])
    ]
    bars = robustness.bars_of(rows, "files")
    assert [bar.met for bar in bars] == [True, False, True, True]
    assert "case 1 (cut): ?" in bars[1].note
    assert not any(bar.met for bar in robustness.bars_of([], "files")), "nothing was measured"


def test_files_follow_from_their_seed(tmp_path: Path):
    done: set[str] = set()
    for seed in range(300):
        folder = tmp_path / str(seed)
        folder.mkdir()
        path, what = make_file(seed, folder)
        assert path.exists()
        done.update(part.strip() for part in what.partition(":")[2].split(","))
        if seed < 10:
            (again := tmp_path / f"{seed} again").mkdir()
            assert make_file(seed, again)[0].read_bytes() == path.read_bytes()
    assert len(done) > 40 and {seed.split(":")[0] for seed in MODELS} == set(MODELS)


def test_there_are_more_than_a_hundred_wrong_calls():
    assert len(CASES) > 100 and {subject for subject, _ in CASES.values()} == {"affine", "lookup", "onnx"}


def test_processes_that_crash_or_hang_are_replaced():
    def work(case: int, tell: Tell) -> None:
        tell({"stage": f"case {case}"})
        if case == 1:
            os.abort()
        if case == 2:
            time.sleep(60)
        tell({"verdict": "equal"})

    seen = {o.case: (o.end, o.told) for o in run_cases(work, range(5), processes=2, limit_s=2.0)}
    assert seen[1] == ("signal 6", {"stage": "case 1"}) and seen[2][0] == "timeout"
    assert all(seen[case] == ("", {"stage": f"case {case}", "verdict": "equal"}) for case in (0, 3, 4))


@pytest.mark.slow
def test_sixty_bad_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """In a fresh process: this one may have started threads, which forked ones would miss."""
    import subprocess
    import sys

    file = tmp_path / "robustness.json"
    command = [
        sys.executable,
        "-m",
        "benchmarks.robustness",
        "--quick",
        "--calls",
        "0",
        "--check",
        "--json",
        str(file),
    ]
    ended = subprocess.run(
        command, capture_output=True, text=True, cwd=Path(__file__).parents[2], check=False
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    record = json.loads(file.read_text())
    assert len(record["rows"]) == 60 and all(bar["met"] for bar in record["bars"])
