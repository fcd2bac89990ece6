"""A recorded run of several ranks, from its traces: matched, on one clock, and replayed if wanted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from daceml.profiling.trace import Trace
from daceml.simulation.distributed.clocks.alignment import Alignment, align
from daceml.simulation.distributed.global_graph import global_graph
from daceml.simulation.distributed.matching import MatchedRun, matched
from daceml.simulation.distributed.rank_run import rank_run
from daceml.simulation.distributed.replay import RunReplay, replayed


@dataclass(frozen=True, kw_only=True, eq=False)
class RecordedRun:
    """All ranks, and what brings their clocks together.

    Attributes:
        traces: by rank.
        hosts: of each rank; equal for ranks that read one clock.
    """

    traces: tuple[Trace, ...]
    hosts: tuple[str, ...]
    run: MatchedRun
    alignment: Alignment

    @classmethod
    def of(cls, traces: Sequence[Trace]) -> RecordedRun:
        """From one trace of each rank.

        Raises:
            CommunicationError, MatchingError, AlignmentError: see `rank_run`, `matched` and `align`.
        """
        ordered = tuple(sorted(traces, key=lambda trace: trace.rank or 0))
        run = matched(rank_run(trace) for trace in ordered)
        hosts = tuple(_host(trace) or known.host for trace, known in zip(ordered, run.ranks, strict=True))
        return cls(traces=ordered, hosts=hosts, run=run, alignment=align(run.timings, hosts))

    @cached_property
    def replay(self) -> RunReplay:
        """Of all ranks together: waiting and communication told apart."""
        return replayed(global_graph(self.run, self.alignment))


def _host(trace: Trace) -> str:
    """What `daceml.profile` writes of the machine; empty where another profiler has recorded."""
    told = trace.header.get("daceml")
    rank = told.get("rank") if isinstance(told, dict) else None  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    return str(rank.get("host") or "") if isinstance(rank, dict) else ""  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]
