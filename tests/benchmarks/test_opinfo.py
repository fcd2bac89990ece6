"""The campaign over torch's database of operators: its judge, what ends a process, and a few operators."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from benchmarks.children import Outcome
from benchmarks.opinfo.__main__ import bars, rows_of
from benchmarks.opinfo.calls import Seen, call
from benchmarks.opinfo.judge import differences
from benchmarks.opinfo.samples import OperatorModule, Sample

X = torch.tensor([1.0, 2.0, 3.0])


def told(ours, eager, *, exact=None, gradients=False, random=False):
    def seen(function) -> Seen:
        return call(function, [X.clone().requires_grad_(gradients)], gradients=gradients, seed=0)

    double = None if exact is None else call(exact, [X.double()], gradients=False, seed=0)
    return differences(seen(ours), seen(eager), double, elementwise=True, values=True, random=random)


def raising(kind):
    def function(x):
        raise kind("no")

    return function


@pytest.mark.parametrize(
    ("ours", "eager", "text"),
    [
        (lambda x: x * 2, lambda x: x * 2, ""),
        (lambda x: x * 3, lambda x: x * 2, "off by"),
        (lambda x: x.double(), lambda x: x * 1, "dtype torch.float64 instead of torch.float32"),
        (lambda x: x[:2] * 1, lambda x: x * 1, "shape [2] instead of [3]"),
        (lambda x: (x.shape[0],), lambda x: x.shape, "instead of TreeSpec(Size"),
        (lambda x: x.clone(), lambda x: x, "shares no memory, not is argument 0"),
        (lambda x: x[1:], lambda x: x[1:].clone(), "lies in argument 0 from +1"),
        (lambda x: x * 2, lambda x: x.mul_(2) * 1, "argument 0 after the call"),
        (raising(ValueError), lambda x: x, "ValueError: no"),
        (raising(ValueError), raising(ValueError), ""),
        (lambda x: x, raising(ValueError), "a result, where eager raises ValueError"),
    ],
)
def test_what_a_caller_can_tell_apart(ours, eager, text):
    found = told(ours, eager)
    assert (text in found[0]) if text else found == []


def test_small_elements_count():
    def flushed(x):
        return torch.where(x < 2, 0.0, x.pow(20))

    found = told(flushed, lambda x: x.pow(20), exact=lambda x: x.pow(20))
    assert "element [0]" in found[0]


def test_gradients_and_what_requires_them():
    assert told(lambda x: x * 2, lambda x: x * 2, gradients=True) == []
    assert "requires_grad False" in told(lambda x: (x * 2).detach(), lambda x: x * 2, gradients=True)[0]
    assert "gradient 0" in told(lambda x: x.detach() + x, lambda x: x * 2, gradients=True)[0]


def test_the_same_numbers_are_drawn():
    assert told(torch.bernoulli, lambda x: torch.rand(3), random=True)


def test_tensors_become_arguments_and_the_rest_stays():
    class Given:
        input, args, kwargs = [X, X + 1], (2, X + 2), {"k": {"t": X + 3, "n": 4}}

    sample = Sample.of(Given)
    seen = OperatorModule(lambda *a, **k: (a, k), sample.arguments)(*sample.fresh(gradients=False))
    (first, number, third), named = seen
    assert len(sample.tensors) == 4 and number == 2 and named["k"]["n"] == 4
    torch.testing.assert_close([*first, third, named["k"]["t"]], [X, X + 1, X + 2, X + 3])
    assert {t.dtype for t in sample.in_float64().tensors} == {torch.float64}


@pytest.mark.parametrize(("end", "verdict"), [("signal 11", "crash"), ("timeout", "hang")])
def test_a_process_that_ends_is_one_operators_fault(end, verdict):
    equal = {"operator": "sin", "sample": 0, "mode": "forward", "verdict": "equal"}
    outcome = Outcome(case=0, told={"0 forward": equal, "at": [0, "gradient"]}, end=end, duration_s=1.0)
    rows = list(rows_of("sin", outcome))
    assert [(row["mode"], row["verdict"]) for row in rows] == [("forward", "equal"), ("gradient", verdict)]
    assert {bar.name: bar.met for bar in bars(rows)}[f"calls: {verdict}"] is False


@pytest.mark.slow
def test_two_operators(tmp_path: Path):
    """In a fresh process: this one may have started threads, which forked ones would miss."""
    pytest.importorskip("expecttest", reason="torch's database of operators imports it (extra opinfo)")
    file, journal = tmp_path / "opinfo.json", tmp_path / "opinfo.jsonl"
    words = ["--samples", "1", "--modes", "forward", "--operators", "=sin", "=linalg.inv"]
    files = ["--json", str(file), "--journal", str(journal)]
    command = [sys.executable, "-m", "benchmarks.opinfo", "--check", *files, *words]
    root = Path(__file__).parents[2]
    ended = subprocess.run(command, capture_output=True, text=True, cwd=root, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    rows = json.loads(file.read_text())["rows"]
    assert {row["operator"]: row["verdict"] for row in rows} == {
        "sin": "equal", "linalg.inv": "equal",
    }  # fmt: skip
