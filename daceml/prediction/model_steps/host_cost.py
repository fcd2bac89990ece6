"""What the host takes to launch a step, where nobody has measured a host."""

from __future__ import annotations

from dataclasses import dataclass

from daceml.simulation.whatif.cuda_graphs import CudaGraphs
from daceml.simulation.whatif.optimization import Estimate, Side

LATENCY_US = 6.5
"""From the start of a launch to that of its kernel on an idle stream: 6.5 to 7 in traces of V100 and A100."""


@dataclass(frozen=True, kw_only=True)
class HostCost:
    """The host's part of a step.

    Attributes:
        call_us: of a call that launches, with the interpreter's part and the driver's. An assumption; a
            recorded run of the model on its own host tells it (docs/prediction.md).
        view_us: of a call that only looks at memory.
        graphed: whether the step is one CUDA graph, launched by one call.
    """

    call_us: Estimate = Estimate(8.0, fast=4.0, slow=20.0)
    view_us: Estimate = Estimate(2.0, fast=1.0, slow=5.0)
    graphed: bool = False

    def at(self, side: Side) -> HostCost:
        """With every figure at best, likely or at worst."""
        return HostCost(call_us=self.call_us.at(side), view_us=self.view_us.at(side), graphed=self.graphed)

    def launch_us(self, kernels: int, side: Side = "likely") -> float:
        """Of the one call that launches a graph of so many kernels."""
        each: Estimate = _GRAPHS.kernel_launch_us
        return getattr(_GRAPHS.launch_us, side) + kernels * getattr(each, side)

    def spacing_us(self, side: Side = "likely") -> float:
        """Between two kernels of a graph."""
        return getattr(_GRAPHS.spacing_us, side)

    @property
    def note(self) -> str:
        """What is taken for granted."""
        if self.graphed:
            return "the whole step is one CUDA graph; the host does nothing else"
        low, high = sorted((self.call_us.fast, self.call_us.slow))
        return (
            f"a call takes the host {self.call_us.likely:g} us, {low:g} to {high:g}: an estimate"
            " without a measurement of the host; data loading is left out"
        )


_GRAPHS = CudaGraphs()
