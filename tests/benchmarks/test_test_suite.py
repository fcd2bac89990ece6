"""The benchmark of the test suite: seconds by cause, minutes with bars, coverage, faults that are found."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.test_suite import __main__ as suite_program
from benchmarks.test_suite import fault_search, recorder, timing
from benchmarks.test_suite.causes import Clock
from benchmarks.test_suite.coverage_of import Coverage, from_report
from benchmarks.test_suite.fault import Fault
from benchmarks.test_suite.processes import Ran, run
from benchmarks.test_suite.timing import TestTime

ROOT = Path(__file__).parents[2]
# of a pytest within the one that runs these tests, which may be recorded itself
OWN_ENVIRONMENT = {
    **{name: value for name, value in os.environ.items() if not name.startswith(("TEST_", "PYTEST_"))},
    "PYTHONPATH": str(ROOT),
}
TESTS = """
import subprocess, sys, time

def test_sleep():
    time.sleep(0.2)

def test_child():
    subprocess.run([sys.executable, "-c", "import time; time.sleep(0.2)"], check=True)

def test_compiler(tmp_path):
    (tmp_path / "a.cpp").write_text("int main() {}")
    subprocess.run(["g++", "a.cpp"], cwd=tmp_path, check=True)
"""


def test_of_two_causes_the_inner_one_counts(monkeypatch: pytest.MonkeyPatch):
    times = iter([0.0, 1.0, 3.0, 7.0])
    monkeypatch.setattr("benchmarks.test_suite.causes.time.perf_counter", lambda: next(times))
    clock = Clock()
    with clock.during("child"), clock.during("sleep"):
        pass
    assert clock.take() == {"child": 5.0, "sleep": 2.0}
    assert clock.take() == {}


def test_a_run_of_pytest_is_recorded_by_cause(tmp_path: Path):
    (tmp_path / "test_causes.py").write_text(TESTS)
    plugins = ["-p", "benchmarks.test_suite.recorder", "-p", "no:cacheprovider"]
    environment = {**OWN_ENVIRONMENT, "TEST_TIMES": str(tmp_path / "times")}
    command = [sys.executable, "-m", "pytest", "-q", *plugins, "test_causes.py"]
    subprocess.run(command, cwd=tmp_path, env=environment, check=True, capture_output=True)
    seen = {time.test.partition("::")[2]: time for time in timing.read(tmp_path / "times")}
    assert set(seen) == {"", "test_sleep", "test_child", "test_compiler"}
    assert seen["test_sleep"].causes["sleep"] >= 0.2
    assert seen["test_child"].causes["child"] >= 0.2
    assert "compiler" not in seen["test_child"].causes
    assert seen["test_compiler"].causes["compiler_busy"] >= seen["test_compiler"].causes["compiler"] > 0
    assert "child" not in seen["test_compiler"].causes
    assert seen["test_compiler"].children_cpu_s > 0


def test_the_order_may_be_random_and_is_that_of_its_number(monkeypatch: pytest.MonkeyPatch):
    def order(number: str) -> list[Any]:
        monkeypatch.setenv("TEST_ORDER", number)
        items: list[Any] = list(range(30))
        recorder.pytest_collection_modifyitems(items)
        return items

    first = order("1")
    assert first == order("1") != order("2")
    assert sorted(first) == order("")


def times(**seconds: float) -> list[TestTime]:
    return [
        TestTime(test=test, wall_s=wall, own_cpu_s=wall / 2, children_cpu_s=0.0, causes={"dace": wall / 4})
        for test, wall in seconds.items()
    ]


def test_long_tests_have_rows_and_the_others_of_a_file_are_summed_up():
    seen = times(
        **{"tests/a/test_x.py::one": 8.0, "tests/a/test_x.py::two": 1.5, "tests/a/test_x.py::three": 1.5},
        **{"tests/test_y.py::short": 0.25},
    )
    rows = timing.rows(seen)
    assert [row["folder"] for row in rows[:2]] == ["a", "(top)"]
    assert rows[0] == {
        "folder": "a",
        "tests": 3,
        "wall_s": 11.0,
        "own_cpu_s": 5.5,
        "children_cpu_s": 0,
        "dace": 2.75,
    }
    assert [row.get("test", row.get("tests of file")) for row in rows[2:]] == [
        "tests/a/test_x.py::one", "tests/a/test_x.py",
    ]  # fmt: skip
    every = timing.table(seen).splitlines()[-1].split()
    assert every[0] == "all" and "4" in every


def test_files_of_which_nothing_ran_are_told():
    told = {"a.py": (3, 2), "b.py": (4, 0), "empty.py": (0, 0)}
    files = {f: {"summary": {"num_statements": n, "covered_lines": ran}} for f, (n, ran) in told.items()}
    assert from_report({"files": files}) == Coverage(statements=7, reached=2, untouched=("b.py",))


def test_a_command_is_watched_with_its_children(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("benchmarks.test_suite.processes._EVERY_S", 0.05)
    child = "a = bytearray(200 << 20); import time; time.sleep(0.4)"
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    parent += "; print('said'); sys.exit(3)"
    ran = run([sys.executable, "-c", parent], tmp_path, os.environ, tmp_path / "log")
    assert ran.exit_code == 3
    assert ran.wall_s > 0.4
    assert ran.memory_bytes > 200 << 20
    assert (tmp_path / "log").read_text() == "said\n"


@pytest.mark.parametrize(("code", "minutes", "met"), [(0, 11, True), (0, 13, False), (1, 1, False)])
def test_a_time_counts_if_everything_is_green(
    code: int, minutes: float, met: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    ran = Ran(exit_code=code, wall_s=60 * minutes, memory_bytes=2**30)
    monkeypatch.setattr(suite_program, "run", lambda *given: ran)
    result = tmp_path / "suite.json"
    arguments = ["--quick", "--check", "--json", str(result), "--folder", str(tmp_path / "work")]
    assert suite_program.main(arguments) == (0 if met else 1)
    bars = {bar["name"]: bar for bar in json.loads(result.read_text())["bars"]}
    assert bars["make test with an empty cache"]["met"] is met
    assert bars["memory of make test"]["met"]


def test_a_fault_is_sought_near_its_file_first_and_the_file_is_put_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    fault = Fault(file="daceml/sdfg/sizes.py", old="def product(", new="def produkt(", wrong="a name")
    seen: list[tuple[list[str], bool]] = []
    failing = {"tests": "tests/x.py::test_far"}

    def first_failure(tests: list[str], copy: Path, *, slow: bool) -> str:
        assert "def produkt(" in (copy / fault.file).read_text()
        seen.append((tests, slow))
        return failing.get(tests[0], "") if slow else ""

    monkeypatch.setattr(fault_search, "FAULTS", (fault,))
    monkeypatch.setattr(fault_search, "_first_failure", first_failure)
    (found,) = fault_search.search(tmp_path)
    assert (found.tier, found.by) == ("slow", "tests/x.py::test_far")
    assert seen[-3:] == [(["tests/sdfg"], False), (["tests"], False), (["tests"], True)]
    assert "def product(" in (tmp_path / "faulty" / fault.file).read_text()

    asked = len(seen)
    assert [one.as_json() for one in fault_search.search(tmp_path)] == [found.as_json()]
    assert len(seen) == asked, "a search that was stopped goes on where it was"
