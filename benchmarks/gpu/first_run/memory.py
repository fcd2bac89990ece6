"""Accesses outside of arrays: by compute-sanitizer on a device, between guard pages in emulation."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace

from benchmarks.gpu.first_run.cells import Cells, chosen
from benchmarks.gpu.first_run.plan import STEPS
from benchmarks.gpu.first_run.rows import Row, add_row
from benchmarks.gpu.first_run.step_arguments import parse
from benchmarks.gpu.first_run.step_cells import cells_of

_ERROR_CODE = 9
_FAULT = re.compile(r"^=========\s+((?:Invalid|Out-of-range|Misaligned|Program hit).*)$")
_PLACE = re.compile(r"^=========\s+at (.*)$")
MOST_FAULTS = 10


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(arguments, "Look for accesses outside of arrays.")
    if options.emulated:
        step = next(step for step in STEPS if step.name == options.step)
        smoke = cells_of("smoke", emulated=True, quick=options.quick)
        # the forward pass of a training step has the kernels of inference, or more
        cells = [replace(cell, question="guarded") for cell in smoke if cell.mode == "training"]
        Cells(step, options).run(chosen(cells, options))
        return 0
    for row in _checked():
        add_row(options.results, {"step": options.step, "kind": "memory", "commit": options.commit, **row})
    return 0


def _checked() -> Iterator[Row]:
    checker = shutil.which("compute-sanitizer")
    if checker is None:
        yield {"case": "memory", "failure": "compute-sanitizer is not on PATH"}
        return
    command = [checker, "--tool", "memcheck", "--error-exitcode", str(_ERROR_CODE)]
    command += [sys.executable, "-m", "benchmarks.gpu.first_run.profiled", "touched"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found = faults(done.stdout + done.stderr)
    if done.returncode not in (0, _ERROR_CODE):
        said = (done.stdout + done.stderr).strip().splitlines()[-3:]
        yield {"case": "memory", "failure": f"exit code {done.returncode}: {' '.join(said)[:300]}"}
    else:
        unnamed = ["memcheck has found errors, and says nothing of them"] if done.returncode else []
        yield {"case": "memory", "outside": found or unnamed}


def faults(text: str) -> list[str]:
    """What compute-sanitizer has found, each with its kernel."""
    found: list[str] = []
    for line in text.splitlines():
        if seen := _FAULT.match(line):
            found.append(seen[1])
        elif found and " at " not in found[-1] and (place := _PLACE.match(line)):
            found[-1] += f" at {place[1]}"
    return found[:MOST_FAULTS]


if __name__ == "__main__":
    sys.exit(main())
