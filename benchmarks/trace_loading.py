"""How long a large trace takes to load, and how much memory: python -m benchmarks.trace_loading --check.

The traces are real ones, or one made by hand where there are none, repeated with later times until they have
100 MB. Each is read in processes of their own.
"""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import command
from benchmarks.bars import Bar
from benchmarks.trace_examples import training_run

MEGABYTES = 100
LIMIT_S, LIMIT_BYTES = 8.0, 2e9
_PAUSE_US = 1000
# Many operators; many Python functions; times with nanoseconds; the oldest spelling
REAL = (
    "dlrm_a100/rank3.pt.trace.json.gz",
    "act_checkpoint_mi300/resnet_act_checkpoint.json.gz",
    "gpu_bound_v100/rank-0.Apr_03_18_51_38.1102.pt.trace.json.gz",
    "resnet50_v100/num_workers_0.pt.trace.json.gz",
)
# What a fresh process does: the peak is that of reading alone. VmHWM begins anew with a program, where
# ru_maxrss goes on from what its parent had taken.
_READ = """
import json, re, sys, time
from daceml.profiling.kineto import read_trace
begun, worked = time.perf_counter(), time.process_time()
trace = read_trace(sys.argv[1])
seconds, cpu_seconds = time.perf_counter() - begun, time.process_time() - worked
peak = 1024 * int(re.search(r"VmHWM:\\s+(\\d+) kB", open("/proc/self/status").read())[1])
told = {"seconds": seconds, "cpu_seconds": cpu_seconds, "peak_bytes": peak, "events": len(trace.events)}
print(json.dumps(told))
"""


def sources(folder: str | None) -> Iterator[tuple[str, dict[str, Any]]]:
    """Names and contents of what is repeated."""
    paths = [Path(folder or "") / "traces" / name for name in REAL] if folder else []
    for path in paths:
        if path.is_file():
            yield path.parent.name, json.loads(gzip.decompress(path.read_bytes()), strict=False)
    if not any(path.is_file() for path in paths):
        yield "made by hand", training_run(steps=1000)


def write_repeated(content: dict[str, Any], path: Path, megabytes: float) -> None:
    """Write the events again and again, each time later and with new correlations."""
    events = content.pop("traceEvents")
    times = [event["ts"] for event in events if "ts" in event]
    span_us = int(max(times) - min(times)) + _PAUSE_US
    ids = 1 + max((_correlation(event) or 0 for event in events), default=0)
    with path.open("w", encoding="utf-8") as file:
        file.write(json.dumps(content)[:-1] + ', "traceEvents": [')
        round_ = 0
        while file.tell() < megabytes * 1e6:
            later = ",\n".join(json.dumps(_later(event, round_ * span_us, round_ * ids)) for event in events)
            file.write((",\n" if round_ else "") + later)
            round_ += 1
        file.write("]}")


def _correlation(event: dict[str, Any]) -> int | None:
    args = event.get("args")
    return args.get("correlation") if isinstance(args, dict) else None  # pyright: ignore[reportUnknownVariableType]


def _later(event: dict[str, Any], shift_us: int, ids: int) -> dict[str, Any]:
    changed = {**event, "ts": event["ts"] + shift_us} if "ts" in event else event
    number = _correlation(event)
    return changed if number is None else {**changed, "args": {**event["args"], "correlation": number + ids}}


def measured(path: Path, rounds: int) -> dict[str, Any]:
    """Seconds of each round, those of the processor alone beside them, and the largest peak."""
    told: list[dict[str, Any]] = []
    for _ in range(rounds):
        done = subprocess.run(
            [sys.executable, "-c", _READ, str(path)], check=True, capture_output=True, text=True
        )
        told.append(json.loads(done.stdout))
    return {
        "events": told[0]["events"],
        "seconds": [round(one["seconds"], 3) for one in told],
        "cpu_seconds": [round(one["cpu_seconds"], 3) for one in told],
        "peak_bytes": max(one["peak_bytes"] for one in told),
    }


def bars_of(rows: Sequence[dict[str, Any]]) -> list[Bar]:
    slowest = max((median(row["seconds"]) for row in rows), default=None)
    largest = max((row["peak_bytes"] for row in rows), default=None)
    of = f"of {len(rows)} traces"
    return [
        Bar(name=f"{MEGABYTES} MB load in", figure=slowest, limit=LIMIT_S, unit="s", note=of),
        Bar(name="peak memory", figure=largest, limit=LIMIT_BYTES, unit="bytes", note=of),
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = command.parser("Read traces of 100 MB.")
    parser.add_argument("--rounds", type=int, default=None, help="of each trace; 3, with --quick 1")
    parser.add_argument("--megabytes", type=float, default=MEGABYTES, help="of text")
    options = parser.parse_args(arguments)
    rounds = options.rounds or (1 if options.quick else 3)
    rows: list[dict[str, Any]] = []
    for name, content in sources(os.environ.get("DACEML_DATA")):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "trace.json"
            write_repeated(content, path, options.megabytes)
            row: dict[str, Any] = {
                "trace": name,
                "megabytes": round(path.stat().st_size / 1e6, 1),
                **measured(path, rounds),
            }
        rows.append(row)
        print(f"{name}: {row['events']} events, {row['megabytes']} MB in {median(row['seconds']):.2f} s "
              f"({median(row['cpu_seconds']):.2f} s of the processor), "
              f"peak {row['peak_bytes'] / 1e6:.0f} MB", flush=True)  # fmt: skip
    return command.finish("trace_loading", options, rows, bars_of(rows))


if __name__ == "__main__":
    sys.exit(main())
