"""Hardware counters of four blocks' kernels, by Nsight Compute; a rehearsal has the expected traffic."""

from __future__ import annotations

import csv
import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.gpu.first_run.profiled import COUNTED, run_once
from benchmarks.gpu.first_run.rows import Row, add_row
from benchmarks.gpu.first_run.step_arguments import parse
from benchmarks.gpu.first_run.tools import CLOSING_S, output_within

# metric of ncu -> its name in a row
METRICS: dict[str, str] = {
    "dram__bytes_read.sum": "dram_read_bytes",
    "dram__bytes_write.sum": "dram_written_bytes",
    "gpu__time_duration.sum": "duration_us",
    "sm__warps_active.avg.pct_of_peak_sustained_active": "active_warps_percent",
    "launch__registers_per_thread": "registers",
}
# unit of ncu, which has two spellings of times -> factor to bytes and microseconds
_UNITS = {
    "byte": 1.0, "Kbyte": 1e3, "Mbyte": 1e6, "Gbyte": 1e9,
    "ns": 1e-3, "us": 1.0, "ms": 1e3, "s": 1e6,
    "nsecond": 1e-3, "usecond": 1.0, "msecond": 1e3, "second": 1e6,
}  # fmt: skip
OUR_KERNELS = "regex:_[0-9a-f]{20}$"


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(arguments, "Read hardware counters of four kernels.")
    found = _rehearsed() if options.emulated else _counted(options.results.parent, options.end)
    for row in found:
        add_row(options.results, {"step": options.step, "kind": "counters", "commit": options.commit, **row})
    return 0


def _rehearsed() -> Iterator[Row]:
    for case in COUNTED:
        small = replace(case, emulated=True)
        yield {"case": small.label, "counters": None, "traffic": run_once(small), "outside": []}


def _counted(folder: Path, end: float) -> Iterator[Row]:
    ncu = shutil.which("ncu")
    if ncu is None:
        yield {"case": "counters", "failure": "ncu is not on PATH"}
        return
    log = folder / "ncu.csv"
    command = [ncu, "--clock-control", "none", "--csv", "--log-file", str(log)]
    command += ["--metrics", ",".join(METRICS), "--kernel-name", OUR_KERNELS, "--launch-count", "24"]
    command += [sys.executable, "-m", "benchmarks.gpu.first_run.profiled", "counted"]
    said = output_within(command, end - CLOSING_S)
    text = log.read_text(encoding="utf-8") if log.is_file() else ""
    rows = list(counters_of(text))
    if not rows:
        last = (text + said.text).strip().splitlines()[-3:]
        yield {"case": "counters", "failure": f"ncu {said.end}: {' '.join(last)[:300]}"}
    yield from rows


def counters_of(text: str) -> Iterator[Row]:
    """The metrics of each launch in ncu's CSV, whose lines have one metric each."""
    lines = [line for line in text.splitlines() if line.startswith('"')]
    launches: dict[str, dict[str, Any]] = {}
    for entry in csv.DictReader(lines):
        name = METRICS.get(entry.get("Metric Name", ""))
        if name is None:
            continue
        row = launches.setdefault(entry["ID"], {"kernel": entry["Kernel Name"].partition("(")[0]})
        row[name] = _value(entry["Metric Value"], entry.get("Metric Unit", ""))
    for row in launches.values():
        lacking = [name for name in METRICS.values() if row.get(name) is None]
        outside = [f"no figure of {', '.join(lacking)}"] if lacking else []
        yield {"case": row["kernel"], "counters": row, "outside": outside}


def _value(text: str, unit: str) -> float | None:
    """In bytes or microseconds; None for what the device does not tell."""
    try:
        return float(text.replace(",", "")) * _UNITS.get(unit, 1.0)
    except ValueError:
        return None


if __name__ == "__main__":
    sys.exit(main())
