"""Memory over time: what an allocator does with a run's blocks, and what a schedule holds when.

replay = replay_trace(read_trace("run.json.gz"))           # allocated and reserved, from recorded events
blocks = recorded_allocations(trace, graph)                # which task takes a block, and which frees it
timeline = memory_over_time(simulate(graph), blocks)
smaller, fewer = recomputed(graph, blocks, layers="^encoder")
"""

from daceml.simulation.memory.accumulation import accumulated
from daceml.simulation.memory.allocations import Allocations
from daceml.simulation.memory.caching_allocator import CachingAllocator
from daceml.simulation.memory.events import AllocatorEvents, trace_events
from daceml.simulation.memory.over_schedule import memory_over_time
from daceml.simulation.memory.recomputation import recomputed
from daceml.simulation.memory.recorded_allocations import recorded_allocations
from daceml.simulation.memory.replay import TraceReplay, replay_events, replay_trace
from daceml.simulation.memory.timeline import MemoryTimeline, OverBudget

__all__ = [
    "Allocations",
    "AllocatorEvents",
    "CachingAllocator",
    "MemoryTimeline",
    "OverBudget",
    "TraceReplay",
    "accumulated",
    "memory_over_time",
    "recomputed",
    "recorded_allocations",
    "replay_events",
    "replay_trace",
    "trace_events",
]
