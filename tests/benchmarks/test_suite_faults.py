"""The faults that are put in by hand fit the tree as it is, so that none of them is judged by mistake."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.test_suite.fault import Fault
from benchmarks.test_suite.faults import FAULTS

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("fault", FAULTS, ids=[f"{n}-{fault.file}" for n, fault in enumerate(FAULTS)])
def test_a_fault_still_applies(fault):
    text = (ROOT / fault.file).read_text(encoding="utf-8")
    changed = fault.applied(text)
    assert changed != text
    assert fault.wrong
    if fault.file.endswith(".py"):
        compile(changed, fault.file, "exec")


def test_thirty_faults_in_all_packages():
    packages = {path.relative_to(ROOT / "daceml").parts[0] for path in (ROOT / "daceml").glob("*/**/*.py")}
    assert len(FAULTS) == 30
    assert {Path(fault.file).parts[1] for fault in FAULTS} == packages


@pytest.mark.parametrize(("text", "count"), [("b = 1", 0), ("a = 1\na = 1", 2)])
def test_a_text_that_stands_there_never_or_twice_is_refused(text, count):
    fault = Fault(file="daceml/there.py", old="a = 1", new="a = 2", wrong="a is one")
    with pytest.raises(ValueError, match=f"daceml/there.py has 'a = 1' {count} times, not once"):
        fault.applied(text)
