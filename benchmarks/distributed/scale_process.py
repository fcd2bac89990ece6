"""One step of BERT-large on many ranks, replayed in a process of its own, whose memory is its own, too.

python -m benchmarks.distributed.scale_process '{"data": 1024, ...}' prints what it took as JSON.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from typing import Any

from daceml.devices.catalogue import find_device
from daceml.devices.roofline import expected
from daceml.operations.database.records import Operation
from daceml.operations.work.operator_work import work_of
from daceml.simulation.distributed.parallelism.block_times import BlockTimes, HostTimes
from daceml.simulation.distributed.parallelism.communication import Communication
from daceml.simulation.distributed.parallelism.plan import ParallelPlan
from daceml.simulation.distributed.parallelism.step_graph import StepCosts, step_graph
from daceml.simulation.distributed.parallelism.transformer import Transformer
from daceml.simulation.distributed.symmetry import fold
from daceml.simulation.engine import simulate
from daceml.simulation.network.topology import Topology

BERT_LARGE = Transformer(layers=24, hidden=1024, heads=16, sequence=512, vocabulary=30522)
DEVICES_PER_NODE = 8
BUCKET_BYTES = 25 * 2.0**20  # torch's DistributedDataParallel, of gradients


def replay(case: dict[str, Any]) -> dict[str, Any]:
    """Makes a graph of a step and replays it.

    Args:
        case: degrees, batches and schedule of the plan; which `ranks`; whether operators and `host` threads
            are tasks of their own; whether equal lanes are to `fold`.
    """
    device = find_device("A100")

    def operator_us(operation: Operation) -> float | None:
        work = work_of(operation)
        return None if work is None else expected(work, device).duration_us

    plan = ParallelPlan(bucket_bytes=BUCKET_BYTES, **case["plan"])
    topology = Topology.of(
        f"{-(-plan.ranks // DEVICES_PER_NODE)}x{DEVICES_PER_NODE}", "200Gbps", inside="NVLink3"
    )
    costs = StepCosts(
        blocks=BlockTimes(operators=operator_us),
        communication=Communication(topology=topology),
        host=HostTimes(call_us=8.0, latency_us=6.5) if case["host"] else None,
    )
    started = time.perf_counter()
    graph = step_graph(
        BERT_LARGE, plan, costs, ranks=case["ranks"], detail="operators" if case["operators"] else "blocks"
    )
    seen: dict[str, Any] = {
        "build_s": time.perf_counter() - started,
        "tasks": len(graph),
        "edges": len(graph.edges),
    }
    if case["fold"]:
        started = time.perf_counter()
        graph = fold(graph).graph
        seen |= {"fold_s": time.perf_counter() - started, "folded_tasks": len(graph)}
    started = time.perf_counter()
    schedule = simulate(graph)
    seen |= {"replay_s": time.perf_counter() - started, "step_us": schedule.makespan_us}
    return seen | {
        "ranks": plan.ranks,
        "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }


if __name__ == "__main__":
    print(json.dumps(replay(json.loads(sys.argv[1]))))
