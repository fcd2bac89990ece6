"""Accesses outside of arrays: by compute-sanitizer on a device, between guard pages in emulation."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.gpu.first_run.cells import Cells, chosen
from benchmarks.gpu.first_run.plan import STEPS
from benchmarks.gpu.first_run.rows import Row, add_row
from benchmarks.gpu.first_run.step_arguments import parse
from benchmarks.gpu.first_run.step_cells import cells_of
from benchmarks.gpu.first_run.tools import CLOSING_S, output_within

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
    for row in _checked(options.results.parent, options.end):
        add_row(options.results, {"step": options.step, "kind": "memory", "commit": options.commit, **row})
    return 0


def _checked(folder: Path, end: float) -> Iterator[Row]:
    checker = shutil.which("compute-sanitizer")
    if checker is None:
        yield {"case": "memory", "failure": "compute-sanitizer is not on PATH"}
        return
    command = [checker, "--tool", "memcheck", "--error-exitcode", str(_ERROR_CODE)]
    command += [sys.executable, "-m", "benchmarks.gpu.first_run.profiled", "touched"]
    # torch's allocator keeps small tensors side by side in one allocation, where no access is outside
    environment = {**os.environ, "PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
    said = output_within(command, end - CLOSING_S, environment)
    (folder / "memcheck.txt").write_text(said.text, encoding="utf-8")
    found = faults(said.text)
    if said.code == 0 or found:
        yield {"case": "memory", "outside": found}
    else:
        last = said.text.strip().splitlines()[-3:]
        yield {"case": "memory", "failure": f"compute-sanitizer {said.end}: {' '.join(last)[:300]}"}


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
