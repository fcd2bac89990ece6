"""What the test suite costs and what it notices: minutes, memory, lines that it runs, faults that it finds.

    python -m benchmarks.test_suite --check                          # make test, twice
    python -m benchmarks.test_suite --steps all ci coverage faults   # hours

Run it with nothing else on the machine. Without --quick, three whole runs and one in random order are part of
the step `again`.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchmarks import command
from benchmarks.bars import Bar
from benchmarks.machine import ROOT
from benchmarks.test_suite import coverage_of, fault_search, timing
from benchmarks.test_suite.processes import Ran, run

_SLOW = ("-m", "not slow")
_RECORDER = "-p benchmarks.test_suite.recorder"
Row = dict[str, Any]


@dataclass
class Suite:
    """Runs of the suite in this repository.

    Attributes:
        folder: for caches, logs and what plugins write.
        rows, bars: what was seen so far.
    """

    folder: Path
    quick: bool
    rows: list[Row] = field(default_factory=list[Row])
    bars: list[Bar] = field(default_factory=list[Bar])

    def run(self, name: str, line: Sequence[str], cache: Path, **more: str) -> Ran:
        """Run a command of the suite, with `cache` as its cache, and note what it took."""
        times = self.folder / f"times-{name}"
        environment = {
            **os.environ,
            "DACEML_CACHE": str(cache),
            "TEST_TIMES": str(times),
            "PYTEST_ADDOPTS": _RECORDER,
            **more,
        }
        log = self.folder / f"{name}.log"
        ran = run(line, ROOT, environment, log)
        print(f"{name}: {ran.wall_s / 60:.1f} min, {ran.memory_bytes / 2**30:.1f} GiB, log {log}", flush=True)
        self.rows.append(
            {
                "step": name,
                "command": " ".join(line),
                "exit_code": ran.exit_code,
                "wall_s": round(ran.wall_s, 1),
                "memory_bytes": ran.memory_bytes,
            }
        )
        if times.is_dir():
            seen = timing.read(times)
            print(timing.table(seen), flush=True)
            self.rows += [{"step": name, **row} for row in timing.rows(seen)]
        return ran

    def bar(self, name: str, figure: float | None, limit: float, unit: str = "", note: str = "") -> None:
        self.bars.append(Bar(name=name, figure=figure, limit=limit, unit=unit, note=note))

    def minutes(self, name: str, ran: Ran, limit: float) -> None:
        """A time counts if everything was green."""
        green = ran.exit_code == 0
        self.bar(name, ran.wall_s / 60 if green else None, limit, "min", "" if green else "tests failed")


def _fast(suite: Suite) -> None:
    cache = suite.folder / "cache"
    cold = suite.run("test", ["make", "test"], cache)
    suite.minutes("make test with an empty cache", cold, 12.0)
    suite.bar("memory of make test", cold.memory_bytes / 2**30, 8.0, "GiB")
    if not suite.quick:
        suite.minutes("make test once more", suite.run("test-warm", ["make", "test"], cache), 7.0)


def _all(suite: Suite) -> None:
    ran = suite.run("test-all", ["make", "test-all"], suite.folder / "cache-all")
    suite.minutes("make test-all with an empty cache", ran, 25.0)


def _ci(suite: Suite) -> None:
    suite.minutes(".ci/run in all", suite.run("ci", ["bash", ".ci/run"], suite.folder / "cache-ci"), 32.0)


def _again(suite: Suite) -> None:
    line, cache = ["make", "test-all"], suite.folder / "cache-again"
    failed = [
        name
        for name, more in (
            *((f"again-{i}", {}) for i in range(1 if suite.quick else 3)),
            ("random-order", {"TEST_ORDER": "1"}),
        )
        if suite.run(name, line, cache, **more).exit_code != 0
    ]
    suite.bar("runs that are not green", len(failed), 0, note=", ".join(failed))


def _coverage(suite: Suite) -> None:
    if find_spec("coverage") is None:
        fix = ".venv/bin/python -m pip install -c constraints.txt -e '.[coverage]'"
        sys.exit(f"coverage is not installed\n  fix: {fix}")
    place = suite.folder / "covered-test"
    place.mkdir()
    rc = coverage_of.settings(place)
    measured = [sys.executable, "-m", "coverage", "run", f"--rcfile={rc}"]
    tests = ["-m", "pytest", "-n", "auto", "--dist", "worksteal", *_SLOW, "tests"]
    suite.run("covered-test", [*measured, *tests], place / "cache", TEST_TIMES="")
    seen = coverage_of.collected(place, ROOT, os.environ)
    suite.rows.append({"step": "coverage", **asdict(seen)})
    missed = 100 * (1 - seen.reached / seen.statements) if seen.statements else None
    suite.bar("statements of daceml that make test does not run", missed, 10.0, "%")
    suite.bar("files of which make test runs nothing", len(seen.untouched), 0, note=", ".join(seen.untouched))


def _faults(suite: Suite) -> None:
    found = fault_search.search(suite.folder, quick=suite.quick)
    suite.rows += [{"step": "faults", **one.as_json()} for one in found]
    slow = [one.fault.file for one in found if one.tier == "slow"]
    seen = sum(one.tier != "" for one in found)
    note = f"{seen} of {len(found)} found in all" + (f"; in {', '.join(slow)}" if slow else "")
    suite.bar("faults that only the slow tests find", len(slow), 0, note=note)


STEPS: dict[str, Callable[[Suite], None]] = {
    "test": _fast,
    "all": _all,
    "ci": _ci,
    "again": _again,
    "coverage": _coverage,
    "faults": _faults,
}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = command.parser(__doc__ or "")
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--steps", nargs="+", choices=tuple(STEPS), default=["test"], metavar="STEP")
    parser.add_argument("--folder", type=Path, help="for caches and logs; a temporary one unless named")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="daceml-test-suite-") as temporary:
        folder = (options.folder or Path(temporary)).absolute()
        folder.mkdir(parents=True, exist_ok=True)
        suite = Suite(folder=folder, quick=options.quick)
        for step in options.steps:
            STEPS[step](suite)
    return command.finish("test_suite", options, suite.rows, suite.bars)


if __name__ == "__main__":
    sys.exit(main())
