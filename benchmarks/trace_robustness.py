"""What damaged traces do: python -m benchmarks.trace_robustness --count 1000 --check.

Each damaged file, of a trace made by hand or a real one, has to be read, or refused by an error of daceml's
that says what, where, why and how to mend it; what was read has to make sense
and to account for every event.
"""

from __future__ import annotations

import gzip
import json
import os
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np

from benchmarks import command
from benchmarks.bars import Bar
from benchmarks.children import Outcome, Tell, run_cases
from benchmarks.trace_examples import as_bytes, training_run
from benchmarks.trace_mutations import mutated
from daceml.errors import DacemlError
from daceml.profiling.kineto import trace_of
from daceml.profiling.kineto.categories import SILENT
from daceml.profiling.trace import UNKNOWN, EventKind, Trace
from daceml.report.replay_text import replay_text
from daceml.simulation.analysis.critical_path import critical_path
from daceml.simulation.building.build import build
from daceml.simulation.engine import simulate

GOOD = ("read", "refused")
BAD = ("foreign exception", "crash", "timeout", "wrong")
LIMIT_S = 60.0
_NO_WORK = "iInCMbesftPNODVvRc()STFp"  # phases of Chrome's format that tell of no work
_LOOKED_AT = 2000  # details, of the first events
# Real traces that are small, beside one of old spelling; the shorter the file, the more a mutation changes.
REAL = (
    "sync_micro_a100/cuda_event_sync_multi_stream/event_sync_trace.json.gz",
    "sync_micro_a100/alexnet/benchmark_result_2869224_1695835535_trace.json.gz",
    "models_mi300/gaunernst_bert-small-uncased__1016001.json.gz",
    "dlrm_8xV100/worker1.pt.trace.json.gz",
)

# Something to do with the bytes of a file: the first sentence on what is wrong with the result, or nothing.
Work = Callable[[bytes, str], str]


def read(data: bytes, source: str) -> str:
    """Read a trace, and see whether it makes sense and tells of every event."""
    trace = trace_of(data, source)
    return fault_of(trace) or miscount_of(data, trace)


def replay(data: bytes, source: str) -> str:
    """Make a task graph of a trace, and replay it."""
    trace = trace_of(data, source)
    schedule = simulate(build(trace))
    if not (np.isfinite(schedule.start_us).all() and (schedule.end_us >= schedule.start_us).all()):
        return "a replay with times that are no numbers"
    replay_text(schedule)
    path = critical_path(schedule)
    return (
        ""
        if abs(path.length_us - schedule.makespan_us) <= 1e-6 * schedule.makespan_us
        else "a path with holes"
    )


WORKS: Mapping[str, Work] = {"read": read, "replay": replay}


def starting_points(folder: str | None) -> list[bytes]:
    """Whole traces: one made by hand, and real ones where there are any."""
    found = [as_bytes(training_run())]
    for name in REAL if folder else ():
        path = Path(folder or "") / "traces" / name
        if path.is_file():
            found.append(gzip.decompress(path.read_bytes()))
    return found


def fault_of(trace: Trace) -> str:
    """What of a trace cannot be, in words; empty where all is well."""
    events, memory = trace.events, trace.memory
    count = len(events)
    if not count:
        return "no event"
    times = {"start": events.start_us, "duration": events.duration_us, "memory": memory.time_us}
    for name, column in {**times, "size": memory.size_bytes}.items():
        if not np.isfinite(column).all():
            return f"{name} that is not a number"
    if (events.duration_us < 0).any() or events.start_us.min() != 0:
        return "durations below zero, or a first event that is not at zero"
    if (np.diff(events.start_us) < 0).any() or (np.diff(memory.time_us) < 0).any():
        return "not in the order of time"
    bounds = {
        "kind": (events.kind, 0, len(EventKind)),
        "name": (events.name, 0, len(trace.names)),
        "lane": (events.lane, 0, len(trace.lanes)),
        "correlation": (events.correlation, UNKNOWN, np.iinfo(np.int64).max),
        "pairs": (trace.gradient_pairs, 0, count),
    }
    for name, (column, low, high) in bounds.items():
        if column.size and not (column.min() >= low and column.max() < high):
            return f"{name} out of range"
    streams = np.array([lane.kind == "stream" for lane in trace.lanes])
    if not streams[events.lane[events.of(EventKind.KERNEL, EventKind.COPY, EventKind.MEMSET)]].all():
        return "device work on a thread"
    if len({lane.name for lane in trace.lanes}) < len(trace.lanes):
        return "two lanes of one name"
    if not np.isfinite(trace.first_us) or len(events.details) != count:
        return "a clock that is not a number, or details of another length"
    written = (
        trace.names,
        trace.notes,
        [lane.name for lane in trace.lanes],
        [*map(dict, events.details[:_LOOKED_AT])],
    )
    json.dumps([*written, *map(dict, trace.devices), dict(trace.header)], ensure_ascii=False).encode()
    return ""


def miscount_of(data: bytes, trace: Trace) -> str:
    """By how many the events of a file differ from those that were read or counted as left out."""
    text = gzip.decompress(data) if data.startswith(b"\x1f\x8b") else data
    content = json.loads(text.decode("utf-8-sig", errors="replace"), strict=False)
    events: list[Any] = content if isinstance(content, list) else content["traceEvents"]
    kinds = Counter(_kind_of(event) for event in events)
    told = len(trace.events) + len(trace.memory.time_us) + sum(trace.left_out.values())
    most = kinds["work"] + kinds["half"]
    # Two halves that belong together are one event.
    least = most - kinds["half"] // 2
    return "" if least <= told <= most else f"{least} to {most} events, of which {told} were read or counted"


def _kind_of(event: Any) -> str:
    """How an event should be accounted for: by itself, as a half of one, or not at all."""
    if not isinstance(event, dict):
        return "work"
    raw = cast("dict[str, Any]", event)
    phase, category = raw.get("ph"), raw.get("cat")
    if phase in ("B", "E"):
        return "half"
    if phase == "X":
        return "none" if isinstance(category, str) and category.lower() in SILENT else "work"
    if phase in ("i", "I", "n") and raw.get("name") == "[memory]":
        return "work"
    return "none" if isinstance(phase, str) and phase and phase in _NO_WORK else "work"


def judged(work: Work, data: bytes, source: str) -> tuple[str, str]:
    """What became of a file, and why."""
    try:
        fault = work(data, source)
    except DacemlError as error:
        complete = error.what and error.where and error.why and error.fix
        return ("refused" if complete else "foreign exception"), str(error)
    except Exception as error:
        lines = [
            line.strip().splitlines()[0] for line in traceback.format_exception(error) if "daceml" in line
        ]
        return "foreign exception", f"{type(error).__name__}: {str(error)[:300]} at {'; '.join(lines[-2:])}"
    return ("wrong", fault) if fault else ("read", "")


def case(seed: int, tell: Tell, work: Work, points: Sequence[bytes]) -> None:
    """Damage a trace, and do the work on it."""
    chosen = 0 if seed % 4 or len(points) == 1 else 1 + seed // 4 % (len(points) - 1)
    data, done = mutated(points[chosen], seed)
    tell({"done": f"trace {chosen}: {done}"})
    found, reason = judged(work, data, f"case {seed}")
    tell({"verdict": found, "reason": reason})


def row_of(outcome: Outcome, work: str) -> dict[str, Any]:
    told = outcome.told
    verdict = told.get("verdict", "timeout" if outcome.end == "timeout" else "crash")
    return {
        "work": work,
        "case": outcome.case,
        "done": told.get("done", ""),
        "verdict": verdict,
        "reason": told.get("reason", outcome.end),
        "duration_s": round(outcome.duration_s, 2),
    }


def bars_of(rows: Sequence[dict[str, Any]], work: str) -> list[Bar]:
    """One bar for each bad end; a run without cases has measured nothing."""
    counts = Counter(row["verdict"] for row in rows)
    bad = [f"case {r['case']} ({r['done']}): {r['reason'][:200]}" for r in rows if r["verdict"] in BAD]
    return [
        Bar(
            name=f"{work}: {end}",
            figure=counts[end] if rows else None,
            limit=0,
            note="; ".join(bad) if counts[end] else f"of {len(rows)}",
        )
        for end in BAD
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = command.parser("Read damaged traces.")
    parser.add_argument("--count", type=int, default=None, help="damaged files; 1000, with --quick 100")
    parser.add_argument("--seed", type=int, default=0, help="of the first file; the next ones count up")
    parser.add_argument("--processes", type=int, default=min(2, os.cpu_count() or 1))
    options = parser.parse_args(arguments)
    count = options.count if options.count is not None else 100 if options.quick else 1000
    points = starting_points(os.environ.get("DACEML_DATA"))
    seeds = range(options.seed, options.seed + count)
    rows: list[dict[str, Any]] = []
    met: list[Bar] = []
    for name, work in WORKS.items():

        def do(seed: int, tell: Tell, work: Work = work) -> None:
            case(seed, tell, work, points)

        outcomes = run_cases(do, seeds, processes=options.processes, limit_s=LIMIT_S)
        done = sorted((row_of(outcome, name) for outcome in outcomes), key=lambda row: row["case"])
        counts = Counter(row["verdict"] for row in done)
        told = ", ".join(f"{counts[end]} {end}" for end in (*GOOD, *BAD) if counts[end])
        print(f"{name}: {len(done)} damaged files of {len(points)} traces: {told}", flush=True)
        rows += done
        met += bars_of(done, name)
    return command.finish("trace_robustness", options, rows, met)


if __name__ == "__main__":
    sys.exit(main())
