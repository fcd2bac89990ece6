"""Others' suites: made-up cases of their form run as theirs do."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
import torch
from torch import nn

import daceml
from benchmarks.suites import __main__ as program
from benchmarks.suites import judge as judging
from benchmarks.suites import kernelbench, torch_mlir
from benchmarks.suites.__main__ import main
from benchmarks.suites.case import Arguments, Case
from benchmarks.suites.judge import Way, judged

_FRAMEWORK = """\
import multiprocess
import torch

class TestUtils:
    def rand(self, *sizes):
        return torch.rand(sizes)
"""
_REGISTRY = """\
from types import SimpleNamespace

GLOBAL_TEST_REGISTRY = []

def register_test_case(module_factory):
    def add(test):
        name = test.__name__
        case = SimpleNamespace(unique_name=name, program_factory=module_factory, program_invoker=test)
        GLOBAL_TEST_REGISTRY.append(case)
        return test
    return add
"""
_CASES = """\
import torch
import torch_mlir._torch_mlir_custom_op_example
from torch_mlir_e2e_test.registry import register_test_case

class Sum(torch.nn.Module):
    def forward(self, a, b, times):
        return a + times * b

class Counter(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        self.calls += 1
        return x * self.calls

@register_test_case(module_factory=Sum)
def Sum_basic(module, tu):
    module.forward(tu.rand(3, 4), tu.rand(4), 2)

@register_test_case(module_factory=Counter)
def Counter_twice(module, tu):
    module.forward(tu.rand(2))
    module.forward(tu.rand(2))
"""
_LISTS = """\
from torch_mlir._version import torch_version_for_comparison, version

assert torch_version_for_comparison() > version.parse("1.0")
WEAK_XFAIL_SET = {"Sum_basic", "a case of another version"}
WEAK_CRASHING_SET = set()
STRONG_PASS_SET = {"Sum_basic", "Counter_twice"}
NONE_PASS_SET = set()
"""
_LINEAR = """\
import torch
import torch.nn as nn

class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.linear = nn.Linear(features, 3)

    def forward(self, x):
        return self.linear(x).relu()

batch_size, features = 128, 8192

def get_inputs():
    return [torch.rand(batch_size, features)]

def get_init_inputs():
    return [features]
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two suites, as a clone of each has them."""
    folder = tmp_path_factory.mktemp("suites")
    mlir = folder / torch_mlir.NAME / "projects/pt1"
    files = {
        mlir / "python/torch_mlir_e2e_test/__init__.py": "",
        mlir / "python/torch_mlir_e2e_test/framework.py": _FRAMEWORK,
        mlir / "python/torch_mlir_e2e_test/registry.py": _REGISTRY,
        mlir / "python/torch_mlir_e2e_test/test_suite/__init__.py": "",
        mlir / "python/torch_mlir_e2e_test/test_suite/some.py": _CASES,
        mlir / "python/torch_mlir_e2e_test/test_suite/vision.py": "import no_such_library",
        mlir / "e2e_testing/xfail_sets.py": _LISTS,
        folder / kernelbench.NAME / "KernelBench/level1/2_Linear.py": _LINEAR,
    }
    for file, text in files.items():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    return folder


def test_every_call_of_a_case_is_played(folder: Path, capsys: pytest.CaptureFixture[str]):
    cases = {case.name: case for case in torch_mlir.cases(folder / torch_mlir.NAME)}
    assert "left out: vision.py" in capsys.readouterr().err
    assert [len(case.calls()) for case in cases.values()] == [1, 2]
    for way in ("evaluation", "dynamic", "dynamo"):
        assert [judged(case, way).verdict for case in cases.values()] == ["equal", "equal"]
    assert judged(cases["Sum_basic"], "training").verdict == "equal"


def test_the_shares_that_torch_mlir_publishes(folder: Path):
    assert torch_mlir.published(folder / torch_mlir.NAME) == {"WEAK": 0.5, "STRONG": 1.0, "NONE": 0.0}


def test_sizes_are_divided_until_they_would_not_fit(folder: Path):
    (case,) = kernelbench.cases(folder / kernelbench.NAME)
    assert case.name == "1/2_Linear"
    assert case.calls()[0].text() == "float32[2, 128]"
    assert case.make().state_dict()["linear.weight"].shape == (3, 128)


def test_a_program_runs_and_its_bars_are_printed(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    line = ["--folder", str(folder), "--ways", "evaluation", "--journal", str(tmp_path / "j"), "--check"]
    assert main(line) == 0
    told = capsys.readouterr().out
    assert "{'equal': 3}" in told and "torch-mlir's programs not passed: 0 %, at most 0 %" in told
    assert main(["--folder", str(tmp_path)]) == 0
    assert "no suites" in capsys.readouterr().out


def test_programs_are_drawn_by_a_seed(folder: Path, tmp_path: Path):
    drawn: list[set[str]] = []
    for seed in ("0", "0", "1"):
        journal = tmp_path / f"j{len(drawn)}"
        line = ["--folder", str(folder), "--ways", "evaluation", "--count", "1", "--seed", seed]
        assert main([*line, "--journal", str(journal)]) == 0
        drawn.append({row["name"] for row in map(json.loads, journal.read_text().splitlines())})
    assert drawn[0] == drawn[1] != drawn[2] and all(len(names) == 1 for names in drawn)


class _Strided(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.as_strided((2,), (1,), 1) * 2


def test_a_graph_of_dynamo_may_be_cut_as_modules_may(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(program._SUITES, kernelbench.NAME, lambda folder: [_case(_Strided)])
    journal = tmp_path / "journal"
    line = ["--folder", str(folder), "--suites", kernelbench.NAME, "--ways", "dynamo"]
    assert main([*line, "--journal", str(journal)]) == 0
    assert json.loads(journal.read_text())["verdict"] == "equal"


class _Waiting(nn.Module):
    """Never returns: at once, or where it is compiled."""

    def __init__(self, *, eager: bool) -> None:
        super().__init__()
        self.eager = eager

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.eager or torch.compiler.is_compiling():
            time.sleep(1000)
        return x


@pytest.mark.parametrize(
    ("eager", "verdict", "note"), [(True, "not made", "eager PyTorch: timeout"), (False, "hang", "timeout")]
)
def test_a_program_that_eager_does_not_end_is_not_daceml_s_fault(
    eager: bool, verdict: str, note: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(
        program._SUITES, kernelbench.NAME, lambda folder: [_case(lambda: _Waiting(eager=eager))]
    )
    journal = tmp_path / "journal"
    line = ["--folder", str(folder), "--suites", kernelbench.NAME, "--ways", "evaluation", "--limit-s", "8"]
    assert main([*line, "--journal", str(journal)]) == 0
    (row,) = map(json.loads, journal.read_text().splitlines())
    assert (row["verdict"], row["note"]) == (verdict, note)


class _Scaled(nn.Module):
    def __init__(self, factor: float = 2.0, *, changed: bool = False) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.full((3,), factor))
        self.register_buffer("seen", torch.zeros(()))
        self.changed = changed

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen += float(self.changed)
        return x * self.weight


def _case(make: object = _Scaled) -> Case:
    return Case(suite="", name="", make=make, calls=lambda: [Arguments.of([torch.ones(2, 3)])])  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("way", "other", "told"),
    [
        ("evaluation", _Scaled(3.0), "result 0"),
        ("training", _Scaled(3.0), "result 0"),
        ("evaluation", _Scaled(changed=True), "argument 2 after the call"),
    ],
)
def test_what_differs_is_wrong(way: Way, other: nn.Module, told: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(judging, "_compiled", lambda module, way: _stolen(module, other))
    found = judged(_case(), way)
    assert found.verdict == "wrong" and told in found.note


def _stolen(module: nn.Module, other: nn.Module) -> nn.Module:
    """Runs as another module does, on the parameters and buffers of the first where it changes them."""
    other.seen = module.seen  # pyright: ignore[reportAttributeAccessIssue]
    return other


def test_gradients_are_compared(monkeypatch: pytest.MonkeyPatch):
    class Detached(_Scaled):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.weight.detach()

    def compiled(module: nn.Module, way: Way) -> nn.Module:
        other = Detached()
        other.weight, other.seen = module.weight, module.seen  # pyright: ignore[reportAttributeAccessIssue]
        return other

    monkeypatch.setattr(judging, "_compiled", compiled)
    assert "gradient 1" in judged(_case(), "training").note


def test_the_reference_is_of_float64_where_a_program_names_float32(monkeypatch: pytest.MonkeyPatch):
    class Cube(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.to(torch.float32) ** 3

    class Product(nn.Module):  # rounds elsewhere, so its gradient, of float64, is not eager's
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.float() * x.float() * x.float()

    x = torch.rand(64, dtype=torch.float64)
    case = Case(suite="", name="", make=Cube, calls=lambda: [Arguments.of([x])])
    monkeypatch.setattr(judging, "_compiled", lambda module, way: Product())
    assert judged(case, "training").verdict == "equal"
    monkeypatch.setattr(judging, "_compiled", lambda module, way: lambda x: x.half().float() ** 3)
    assert judged(case, "training").verdict == "wrong"


def test_an_error_is_foreign_or_a_refusal(monkeypatch: pytest.MonkeyPatch):
    def failing(error: Exception) -> object:
        def call(*arguments: object) -> object:
            raise error

        return lambda module, way: call

    monkeypatch.setattr(judging, "_compiled", failing(KeyError("x")))
    assert judged(_case(), "evaluation").verdict == "foreign"
    refusal = daceml.DacemlError("w")
    monkeypatch.setattr(judging, "_compiled", failing(refusal))
    assert judged(_case(), "evaluation").verdict == "refused"


def test_what_eager_cannot_make_is_not_judged():
    def broken() -> nn.Module:
        raise ImportError("no such library")

    found = judged(_case(broken), "evaluation")
    assert (found.verdict, found.note) == ("not made", "ImportError: no such library")
