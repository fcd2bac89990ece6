"""How fast the simulator is: a replay of a million tasks, a single change, a large file."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from daceml.profiling.kineto import read_trace
from daceml.simulation.engine import resimulate, simulate
from daceml.simulation.graph import NOTHING, Edges, TaskGraph, Tasks
from daceml.simulation.task import EdgeKind, Lane, Phase, TaskKind

FILE_BYTES = 100_000_000


def synthetic_graph(count: int, lanes: int = 10, seed: int = 0) -> TaskGraph:
    """Tasks on ordered lanes, and three edges for two tasks, each from an earlier to a later one."""
    random = np.random.default_rng(seed)
    lane = random.integers(lanes, size=count)
    source = random.integers(count - 1, size=count + count // 2)
    target = np.minimum(source + 1 + random.integers(1000, size=len(source)), count - 1)
    apart = lane[source] != lane[target]
    source, target = source[apart], target[apart]
    same = np.zeros(count, np.int64)
    return TaskGraph(
        tasks=Tasks(
            key=np.arange(count), name=same, layer=same + NOTHING, operator=same + NOTHING,
            step=same + NOTHING,
            kind=same + TaskKind.KERNEL, phase=same + Phase.FORWARD, lane=lane,
            duration_us=random.exponential(10.0, count), gap_us=random.exponential(1.0, count),
            recorded_us=np.zeros(count), size_bytes=np.full(count, np.nan), priority=np.zeros(count),
        ),
        edges=Edges(
            source=source, target=target, lag_us=np.full(len(source), 5.0),
            from_start=random.random(len(source)) < 0.5, kind=np.full(len(source), EdgeKind.LAUNCH),
        ),
        lanes=tuple(Lane(kind="stream", name=f"stream {number}", device=0) for number in range(lanes)),
        names=("kernel",),
        source=f"{count} synthetic tasks",
    )  # fmt: skip


def replay_speed(count: int, repeats: int) -> dict[str, Any]:
    """Seconds of a replay, the order of the tasks included, and of what one kernel's change costs."""
    graph = synthetic_graph(count)
    schedule = simulate(graph)  # compiles
    fresh = (_unknown(graph) for _ in range(repeats))  # neighbours and order are to be found again
    whole_s = [_seconds(lambda graph=one: simulate(graph)) for one in fresh]
    again_s = [_seconds(lambda: simulate(graph)) for _ in range(repeats)]
    random, change_s = np.random.default_rng(1), list[float]()
    for task in random.integers(count, size=10 * repeats).tolist():
        duration_us = graph.tasks.duration_us.copy()
        duration_us[task] *= 0.5
        changed = graph.with_times(duration_us=duration_us)
        change_s.append(_seconds(lambda changed=changed: resimulate(schedule, changed)))
    return {
        "case": f"{count} tasks",
        "edges": len(graph.edges),
        "replay_s": median(whole_s),
        "replay_of_known_structure_s": median(again_s),
        "change_s": median(change_s),
        "change_worst_s": max(change_s),
        "change_speedup": median(again_s) / median(change_s),
    }


def _unknown(graph: TaskGraph) -> TaskGraph:
    """The same graph, of which nothing is known yet."""
    return TaskGraph(
        tasks=graph.tasks, edges=graph.edges, lanes=graph.lanes, names=graph.names, source=graph.source
    )


def _seconds(work: Any) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def load_speed(sample: Path) -> dict[str, Any]:
    """Seconds and memory of reading 100 MB, made of copies of a real trace one after the other."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "large.json"
        _repeated(sample, file)
        line = [sys.executable, "-m", "benchmarks.replay.speed", str(file)]
        done = subprocess.run(line, capture_output=True, text=True, check=True)
        return {"case": "reading a large file", "bytes": file.stat().st_size, **json.loads(done.stdout)}


def _repeated(sample: Path, file: Path) -> None:
    import gzip

    document = json.loads(gzip.decompress(sample.read_bytes()).decode("utf-8", "replace"), strict=False)
    events = document.pop("traceEvents")
    span = max(event["ts"] + event.get("dur", 0) for event in events if "ts" in event) - min(
        event["ts"] for event in events if "ts" in event
    )
    with file.open("w", encoding="utf-8") as stream:
        stream.write(json.dumps(document)[:-1] + ', "traceEvents": [')
        copies = 0
        while stream.tell() < FILE_BYTES:
            for event in events:
                if "ts" not in event and copies:
                    continue
                moved = dict(event)
                if "ts" in event:
                    moved["ts"] = event["ts"] + copies * span
                if "correlation" in event.get("args", {}):
                    moved["args"] = event["args"] | {
                        "correlation": event["args"]["correlation"] + copies * 10**8
                    }
                if "id" in event and isinstance(event["id"], int):
                    moved["id"] = event["id"] + copies * 10**8
                stream.write(json.dumps(moved) + ",\n")
            copies += 1
        stream.write(json.dumps(events[-1]) + "]}")


def main() -> int:
    start = time.perf_counter()
    trace = read_trace(sys.argv[1])
    seconds = time.perf_counter() - start
    peak_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps({"load_s": seconds, "peak_bytes": peak_bytes, "events": len(trace.events)}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
