"""A trace becomes a task graph: `ROWS` and `EDGES` in order, then gaps, then what is left unexplained."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from daceml.errors import TraceContentError
from daceml.profiling.trace import Trace
from daceml.simulation.building.attribution import attribute
from daceml.simulation.building.blocking_calls import add_synchronization_edges, split_blocking_copies
from daceml.simulation.building.compiled_kernels import attribute_compiled
from daceml.simulation.building.contradictions import without_contradictions
from daceml.simulation.building.cpu_lanes import add_cpu_rows
from daceml.simulation.building.device_lanes import add_device_rows
from daceml.simulation.building.draft import Draft, finish
from daceml.simulation.building.gaps import gaps_of, note_unexplained
from daceml.simulation.building.graph_launches import add_unrecorded_work
from daceml.simulation.building.inflation import add_inflation
from daceml.simulation.building.launch_queue import add_queue_edges
from daceml.simulation.building.launches import add_launch_edges, keep_own_latencies
from daceml.simulation.building.number_formats import add_card
from daceml.simulation.building.overlaps import warn_of_overlaps
from daceml.simulation.building.process_group_work import add_process_group_rows, add_process_group_waits
from daceml.simulation.building.steps import add_step_markers, assign_steps
from daceml.simulation.building.stream_waits import add_stream_waits
from daceml.simulation.building.thread_handover import add_handover_edges
from daceml.simulation.graph import NOTHING, TaskGraph

Pass = Callable[[Draft], None]

# Rows first; `arrange` puts them in order; then what they wait for, the calls' own waits before whatever
# compares a start with them.
ROWS: tuple[Pass, ...] = (
    add_cpu_rows,
    add_device_rows,
    split_blocking_copies,
    add_unrecorded_work,
    add_process_group_rows,
    add_step_markers,
)
EDGES: tuple[Pass, ...] = (
    warn_of_overlaps,
    assign_steps,
    attribute,
    attribute_compiled,
    add_synchronization_edges,
    add_process_group_waits,
    add_handover_edges,
    add_queue_edges,
    add_launch_edges,
    add_stream_waits,
    keep_own_latencies,
)

# Shares of a device's tasks whose launch is not recorded, after the first task whose launch is
_DOUBTFUL_UNLINKED, _MOST_UNLINKED = 0.2, 0.5


@dataclass(frozen=True, kw_only=True)
class Options:
    """How a graph is made.

    Attributes:
        queue_depth: launches that wait for a stream at most; None learns it from the trace.
    """

    queue_depth: int | None = None


def build(trace: Trace, options: Options | None = None) -> TaskGraph:
    """The task graph of one process.

    Args:
        trace: as `daceml.profiling.kineto.read_trace` gives it.
    Raises:
        TraceContentError: nothing ran, or too much of the device's work was launched by calls that the trace
            does not hold, so that nobody knows what it waited for.
    """
    options = Options() if options is None else options
    draft = Draft(trace)
    for step in ROWS:
        step(draft)
    draft.arrange()
    _check(draft)
    for step in EDGES:
        if step is add_queue_edges:
            add_queue_edges(draft, depth=options.queue_depth)
        else:
            step(draft)
    gaps = gaps_of(draft)
    note_unexplained(draft, gaps)
    add_inflation(draft)
    add_card(draft)
    return without_contradictions(finish(draft, gaps=gaps))


def _check(draft: Draft) -> None:
    if not draft.rows:
        raise TraceContentError(
            "the trace holds no work",
            where=draft.trace.source,
            why="no operator, call of the runtime or kernel was recorded",
            fix="record whole steps with activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]; give"
            " torch.profiler.schedule repeat=1, or an unfinished second cycle overwrites the file",
        )
    device = draft.device_rows()
    unlinked = sum(
        draft.rows[number].launched_by == NOTHING
        and draft.rows[number].position >= draft.linked_from(draft.rows[number].lane)
        for number in device
    )
    alone = all(draft.rows[number].launched_by == NOTHING for number in device)
    if device and (alone or unlinked > _MOST_UNLINKED * len(device)):
        raise TraceContentError(
            f"{len(device) if alone else unlinked} of the {len(device)} tasks of the device were launched by"
            " calls that the trace lacks",
            where=draft.trace.source,
            why="what a kernel waits for is known through the call that launched it",
            fix="record the CPU side as well (ProfilerActivity.CPU), and from a warm-up step on",
        )
    if unlinked > _DOUBTFUL_UNLINKED * len(device):
        draft.warnings.append(
            f"{unlinked} of the {len(device)} tasks of the device were launched by calls that the trace"
            " lacks: they follow their stream, whatever the host does"
        )
