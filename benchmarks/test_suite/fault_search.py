"""Which tests find a fault: those of its file first, then of its folder, then all; the slow ones last."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from benchmarks.journal import Journal
from benchmarks.machine import ROOT
from benchmarks.test_suite.fault import Fault
from benchmarks.test_suite.faults import FAULTS

Tier = Literal["test", "slow", ""]
_FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+)", re.MULTILINE)
_LIMIT_S = 3600.0
# It compares the list of faults with the sources, so it would find each of them.
_OF_THE_LIST = "tests/benchmarks/test_suite_faults.py"


@dataclass(frozen=True, kw_only=True)
class Found:
    """What became of one fault.

    Attributes:
        tier: of the tests that found it; empty where none did.
        by: the test that failed first.
        commit: what the fault was put into.
    """

    fault: Fault
    tier: Tier
    by: str
    seconds: float
    commit: str

    def as_json(self) -> dict[str, Any]:
        return {
            "file": self.fault.file,
            "wrong": self.fault.wrong,
            "tier": self.tier,
            "by": self.by,
            "seconds": round(self.seconds, 1),
            "commit": self.commit,
        }


def search(folder: Path, *, quick: bool = False) -> list[Found]:
    """Put each fault into a copy of the repository, one at a time, and run tests until one fails.

    What is known is kept in `faults.jsonl` in the folder: a search that was stopped goes on where it was.
    """
    copy = folder / "faulty"
    if copy.exists():
        shutil.rmtree(copy)
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(copy)], check=True)
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=copy, check=True, capture_output=True, text=True
    ).stdout.strip()
    journal = Journal(folder / "faults.jsonl", lambda row: (row["file"], row["wrong"]))
    found: list[Found] = []
    for fault in FAULTS[:3] if quick else FAULTS:
        row = journal.rows.get((fault.file, fault.wrong))
        if row is None:
            one = _judge(fault, copy, commit)
            journal.add(one.as_json())
        else:
            one = Found(
                fault=fault, tier=row["tier"], by=row["by"], seconds=row["seconds"], commit=row["commit"]
            )
        found.append(one)
        print(f"{one.tier or 'not found':<9} {fault.file}: {one.by}", flush=True)
    return found


def _judge(fault: Fault, copy: Path, commit: str) -> Found:
    file = copy / fault.file
    text = file.read_text(encoding="utf-8")
    file.write_text(fault.applied(text), encoding="utf-8")
    start = time.perf_counter()
    tier: Tier = ""
    by = ""
    try:
        for near, tests in _near_to_far(fault, copy):
            by = _first_failure(tests, copy, slow=near == "slow")
            if by:
                tier = near
                break
    finally:
        file.write_text(text, encoding="utf-8")
    return Found(fault=fault, tier=tier, by=by, seconds=time.perf_counter() - start, commit=commit)


def _near_to_far(fault: Fault, copy: Path) -> Iterator[tuple[Tier, Sequence[str]]]:
    path = Path(fault.file).relative_to("daceml")
    own = Path("tests") / path.parent / f"test_{path.stem}.py"
    if (copy / own).exists():
        yield "test", [str(own)]
    for parent in path.parents[:-1]:
        if (copy / "tests" / parent).is_dir():
            yield "test", [str(Path("tests") / parent)]
    yield "test", ["tests"]
    yield "slow", ["tests"]


def _first_failure(tests: Sequence[str], copy: Path, *, slow: bool) -> str:
    """The name of a test that failed; empty where none did."""
    marks = "slow" if slow else "not slow"
    line = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-x",
        "-n",
        "auto",
        "--dist",
        "worksteal",
        "-m",
        marks,
        f"--ignore={_OF_THE_LIST}",
        *tests,
    ]
    environment = {**os.environ, "PYTHONPATH": str(copy)}
    done = subprocess.run(
        line, cwd=copy, env=environment, capture_output=True, text=True, timeout=_LIMIT_S, check=False
    )
    if done.returncode in (0, 5):  # 5: none of these tests is in this tier
        return ""
    failed = _FAILED.search(done.stdout)
    return failed[1] if failed else f"pytest ended with {done.returncode}"
