"""Priority-based parameter propagation: slices of gradients, those first that the next step needs first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from daceml.simulation.engine.events import SchedulingPolicy, by_priority
from daceml.simulation.graph import TaskGraph
from daceml.simulation.whatif.parameter_server import ParameterServer


@dataclass(frozen=True, kw_only=True)
class PriorityPropagation(ParameterServer):
    """Training with parameter servers that sends small slices, whichever the next step needs first.

    Attributes:
        slice_bytes: of a slice at most.
    """

    option: ClassVar[str] = "p3"
    title: ClassVar[str] = "parameter servers with priority-based propagation"
    source: ClassVar[str] = (
        "Jayarajan et al., P3 (MLSys '19): slices of 50,000 parameters; Zhu et al., Daydream (ATC '20),"
        " Algorithm 7"
    )

    slice_bytes: float = 200_000

    @property
    def policy(self) -> SchedulingPolicy | None:
        return by_priority

    @property
    def slice_limit_bytes(self) -> float:
        return self.slice_bytes

    def check(self, graph: TaskGraph) -> str | None:
        if not self.slice_bytes > 0:
            return f"a slice cannot have {self.slice_bytes} bytes"
        return super().check(graph)
