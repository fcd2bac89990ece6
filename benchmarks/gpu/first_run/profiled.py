"""Runs a few cases once and measures nothing: the program that ncu and compute-sanitizer look into."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any

from benchmarks.gpu.case import Case
from benchmarks.gpu.precisions import PRECISIONS, computing_in
from benchmarks.gpu.timing import OURS
from benchmarks.gpu.ways import ways_of

COUNTED = (
    Case(kind="replays", name="mish", mode="inference"),
    Case(kind="replays", name="layer_norm", mode="training"),
    Case(kind="replays", name="softmax", mode="inference"),
    Case(kind="replays", name="batch_norm", mode="training"),
)
TOUCHED = (
    Case(kind="small", name="mish", mode="training"),
    Case(kind="small", name="linear_norm", mode="training"),
)
SETS = {"counted": COUNTED, "touched": TOUCHED}


def run_once(case: Case) -> dict[str, Any]:
    """Compile a case and run it twice; gives what its programs launch and move."""
    ways = ways_of(case)
    with computing_in(PRECISIONS[case.precision]):
        step = ways.build(OURS)
        step()
        step()
        ways.target.wait()
        traffic = ways.traffic()
    ways.target.release()
    return traffic


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Run some cases once, for a profiler to look at.")
    parser.add_argument("set", choices=SETS)
    for case in SETS[parser.parse_args(arguments).set]:
        run_once(case)
    return 0


if __name__ == "__main__":
    sys.exit(main())
