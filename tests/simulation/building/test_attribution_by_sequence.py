"""Which operator a kernel belongs to."""

from __future__ import annotations

import numpy as np

from daceml.profiling.trace import UNKNOWN, EventKind, Events, Memory, Trace, TraceLane
from daceml.simulation.building.build import build
from daceml.simulation.task import Phase

# (kind, name, lane, start, duration, correlation, sequence)
Row = tuple[EventKind, str, int, float, float, int, int]


def trace_of(*rows: Row) -> Trace:
    names = tuple(dict.fromkeys(row[1] for row in rows))
    kind, name, lane, start_us, duration_us, correlation, sequence = zip(*rows, strict=True)
    events = Events(
        kind=np.array(kind, np.int64),
        name=np.array([names.index(text) for text in name], np.int64),
        lane=np.array(lane, np.int64),
        start_us=np.array(start_us, np.float64),
        duration_us=np.array(duration_us, np.float64),
        correlation=np.array(correlation, np.int64),
        external_id=np.full(len(rows), UNKNOWN, np.int64),
        sequence=np.array(sequence, np.int64),
        details=({},) * len(rows),
    )
    none = np.zeros(0)
    whole = none.astype(np.int64)
    memory = Memory(
        time_us=none, device=whole, address=whole, size_bytes=none, allocated_bytes=none, reserved_bytes=none
    )
    lanes = (
        TraceLane(kind="thread", process="1", thread="1"),
        TraceLane(kind="stream", process="0", thread="7", device=0),
    )
    return Trace(source="story", events=events, lanes=lanes, names=names, memory=memory)


def test_of_operators_with_one_sequence_number_the_last_made_the_node_that_runs_backward():
    """Batch normalisation counts its batches first: an addition without a gradient, with the same number."""
    evaluate = "autograd::engine::evaluate_function: NativeBatchNormBackward0"
    graph = build(
        trace_of(
            (EventKind.OPERATOR, "aten::add_", 0, 0, 2, UNKNOWN, 5),
            (EventKind.OPERATOR, "aten::batch_norm", 0, 3, 9, UNKNOWN, 5),
            (EventKind.CALL, "cudaLaunchKernel", 0, 4, 2, 1, UNKNOWN),
            (EventKind.KERNEL, "bn_fw", 1, 8, 5, 1, UNKNOWN),
            (EventKind.OPERATOR, evaluate, 0, 20, 9, UNKNOWN, 5),
            (EventKind.CALL, "cudaLaunchKernel", 0, 22, 2, 2, UNKNOWN),
            (EventKind.KERNEL, "bn_bw", 1, 26, 5, 2, UNKNOWN),
        )
    )
    kernels = {graph.name_of(task): task for task in graph if graph.on_device()[task]}
    assert graph.operator_of(kernels["bn_fw"]) == graph.operator_of(kernels["bn_bw"]) == "aten::batch_norm"
    assert graph.tasks.phase[kernels["bn_bw"]] == Phase.BACKWARD
