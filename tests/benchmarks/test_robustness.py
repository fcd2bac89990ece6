"""The campaign of bad files: its judgement on made-up outcomes, and a small one that is run."""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from benchmarks import robustness
from benchmarks.children import Outcome, Tell, run_cases
from benchmarks.robustness_calls import CASES, subject
from benchmarks.robustness_models import MODELS
from benchmarks.robustness_mutations import make_file
from daceml.errors import BuildError, CallError
from tests.support.golden import golden


def outcome(end: str = "", **told: str) -> Outcome:
    return Outcome(case=0, told=told, end=end, duration_s=1.0)


def test_what_happened_is_judged():
    assert robustness.verdict(outcome(verdict="refused", reason="why")) == ("refused", "why")
    assert robustness.verdict(outcome("signal 11", stage="the call")) == ("crash", "signal 11 in the call")
    verdict, reason = robustness.verdict(outcome("timeout", stage="compilation"))
    assert (verdict, reason) == ("timeout", golden())
    assert "1 s" in reason and "compilation" in reason
    assert robustness.verdict(outcome("signal 11", ours="ran"))[0] == "no oracle", "the peer crashed"


def test_results_are_compared_with_every_peer():
    one, nan = np.ones(3, dtype=np.float32), np.array([1, np.nan, 1], dtype=np.float32)
    assert robustness.compare([one], [[one * 2], [one]]) == ("equal", "")
    assert robustness.compare([one], []) == ("no oracle", golden())
    assert robustness.compare([one], [[one * 2]])[0] == "wrong"
    assert robustness.compare([nan], [[one]])[0] == "wrong", "a NaN where the peer has a number"
    assert robustness.compare([one], [[nan]]) == ("equal", "")
    for given, peer, facts in (
        ([one], [one[None]], ["float32 (3,)", "float32 (1, 3)"]),
        ([one], [one, one], ["1 results", "2"]),
        ([np.array([1, 2])], [np.array([1, 3])], ["1 of 2"]),
    ):
        _, reason = robustness.compare(given, [peer])
        assert reason == golden()
        assert all(fact in reason for fact in facts)


def test_calls_may_be_refused_or_end_as_the_peers():
    x, refused = torch.ones(2), CallError("no", why="so", fix="thus")
    judge = robustness.compare_calls
    assert judge(None, refused, None, TypeError())[0] == "refused"
    assert judge(None, refused, x, None)[0] == "refused alone", "the peer has a result"
    assert judge(None, CallError("no"), None, TypeError())[0] == "foreign exception", "no reason"
    assert judge(None, BuildError("g++", why="so", fix="thus"), x, None)[0] == "foreign exception"
    assert judge(None, TypeError("a"), None, TypeError("b"))[0] == "as eager"
    assert judge(None, RecursionError(), None, TypeError())[0] == "foreign exception"
    assert judge(None, TypeError(), x, None)[0] == "foreign exception"
    verdict, reason = judge(x, None, None, IndexError())
    assert (verdict, reason) == ("wrong", golden())
    assert "IndexError()" in reason
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


@pytest.mark.filterwarnings("ignore::UserWarning")  # some kinds of tensors announce that they are new
def test_the_wrong_calls_are_different_calls():
    made: dict[str, str] = {}
    for name, (kind, call) in CASES.items():
        seen: list[str] = []
        # some peers would read memory that is freed
        peer = torch.numel if "freed" in name else subject(kind, compiled=False)[1]

        def spy(*args: Any, seen: list[str] = seen, peer: Any = peer, **kwargs: Any) -> Any:
            seen.append(f"{described(args)} {described(kwargs)} {modes()}")
            return peer(*args, **kwargs)

        with contextlib.suppress(Exception):
            call(spy)
        key = f"{kind}: {seen}"
        assert seen or "copy" in name or "func" in name, name
        assert made.setdefault(key, name) == name, f"{name} is {made[key]}"
    assert len(made) > 200 and {subject for subject, _ in CASES.values()} == {
        "affine",
        "lookup",
        "strict",
        "onnx",
    }


def described(value: Any, depth: int = 0) -> str:
    """What tells one argument from another."""
    if depth > 6:
        return "..."
    if isinstance(value, torch.Tensor):
        text = f"{type(value)} {value.dtype} {value.device} {value.layout} {value.requires_grad}"
        with contextlib.suppress(Exception):  # not every kind of tensor has them
            text += f" {value.shape} {value.stride()} {value.storage_offset()} {value.is_inference()}"
        with contextlib.suppress(Exception):
            text += f" {value.is_neg()} {value.is_conj()} {value.untyped_storage().nbytes()}"
            text += (
                str(value.tolist()) if 0 < value.numel() < 100 and value.untyped_storage().nbytes() else ""
            )
        return text
    if isinstance(value, dict):
        return str([(key, described(part, depth + 1)) for key, part in value.items()])
    if isinstance(value, list | tuple):
        return str([type(value), *(described(part, depth + 1) for part in value)])
    if isinstance(value, int | float | str | bytes | np.ndarray | np.generic):
        return f"{type(value)} {value!r} {getattr(value, 'dtype', '')!r} {getattr(value, 'strides', '')}"
    return str(type(value))


def modes() -> str:
    told = (
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        torch.is_autocast_enabled("cpu"),
        torch.get_default_dtype(),
        torch.get_default_device(),
        torch.autograd.forward_ad._current_level,
        str(torch._C._functorch.peek_interpreter_stack()),
        threading.current_thread() is threading.main_thread(),
        torch._C._len_torch_dispatch_stack(),
    )
    return str(told)


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
def test_sixty_bad_files_and_sixty_wrong_calls(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """In a fresh process: this one may have started threads, which forked ones would miss."""
    import subprocess
    import sys

    file = tmp_path / "robustness.json"
    command = [
        sys.executable,
        "-m",
        "benchmarks.robustness",
        "--quick",
        "--check",
        "--json",
        str(file),
    ]
    ended = subprocess.run(
        command, capture_output=True, text=True, cwd=Path(__file__).parents[2], check=False
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    record = json.loads(file.read_text())
    kinds = [row["kind"] for row in record["rows"]]
    assert kinds.count("files") == kinds.count("calls") == 60
    assert all(bar["met"] for bar in record["bars"])
