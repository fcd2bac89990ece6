"""A part of a network in a process of its own, which may crash or take too long; prints a line of JSON."""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from benchmarks import quiet
from benchmarks.interleave import TUNED_ALLOCATOR
from benchmarks.machine import ROOT
from benchmarks.networks.parts import ALL_PARTS, INTERLEAVED, Case

# (case, part, seconds) -> what the part returned, or {"failure": reason}
RunPart = Callable[[Case, str, float], dict[str, Any]]


def run_part(case: Case, part: str, limit_s: float) -> dict[str, Any]:
    """Run a part with the tuned allocator; one that fails or does not end gives its reason as `failure`.

    Parts that interleave variants choose the allocator of each.
    """
    environment = dict(os.environ) if part in INTERLEAVED else {**os.environ, **TUNED_ALLOCATOR}
    line = [sys.executable, "-m", "benchmarks.networks.process", part, json.dumps(asdict(case))]
    with tempfile.TemporaryFile("w+") as said, tempfile.TemporaryFile("w+") as complained:
        child = subprocess.Popen(
            line, cwd=ROOT, env=environment, stdout=said, stderr=complained,
            start_new_session=True,
        )  # fmt: skip
        try:
            code = child.wait(limit_s)
        except subprocess.TimeoutExpired:
            return {"failure": f"took longer than {limit_s:.0f} s"}
        finally:
            _end(child)
        said.seek(0)
        complained.seek(0)
        if code != 0:
            reason = (complained.read().strip().splitlines() or ["no message"])[-1]
            return {"failure": f"exit code {code}: {reason}"}
        return json.loads(said.read().splitlines()[-1])


def _end(child: subprocess.Popen[bytes]) -> None:
    """End a process with those that it started; variants that lead sessions of their own follow its pipes."""
    if child.poll() is None:
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", choices=tuple(ALL_PARTS))
    parser.add_argument("case", type=json.loads, help="fields of a case as JSON")
    options = parser.parse_args(arguments)
    if options.part not in INTERLEAVED:  # there each variant claims it when it measures
        quiet.claim_priority()
    print(json.dumps(ALL_PARTS[options.part](Case(**options.case))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
