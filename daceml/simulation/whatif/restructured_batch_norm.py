"""Batch normalisation that is split between the convolution before it and the one behind it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from daceml.simulation.graph import Mask, TaskGraph
from daceml.simulation.primitives.remove import remove
from daceml.simulation.primitives.scale import scale
from daceml.simulation.primitives.select import select
from daceml.simulation.task import Phase
from daceml.simulation.whatif.optimization import Estimate, Optimization
from daceml.simulation.whatif.work import neighbours, of_layers


@dataclass(frozen=True, kw_only=True)
class RestructuredBatchNorm(Optimization):
    """Normalisation faster, activations next to it gone.

    Attributes:
        speedup: of batch normalisation, which reads its input half as often. What was built for Daydream's
            evaluation gained half of what it predicted: new kernels, copies and allocations.
    """

    option: ClassVar[str] = "restructured-batch-norm"
    title: ClassVar[str] = "restructured batch normalisation"
    above_zero: ClassVar[tuple[str, ...]] = ("speedup",)
    source: ClassVar[str] = (
        "Jung et al., Restructuring Batch Normalization (arXiv:1807.01702);"
        " Zhu et al., Daydream (ATC '20), Algorithm 5"
    )

    speedup: Estimate = Estimate(2.0, fast=2.0, slow=1.0)

    @property
    def may_cost(self) -> bool:
        return self.speedup.likely < 1

    def check(self, graph: TaskGraph) -> str | None:
        return None if of_layers(graph, "batch norm").any() else "no work of the run is a batch normalisation"

    def apply(self, graph: TaskGraph) -> TaskGraph:
        faster = scale(graph, of_layers(graph, "batch norm"), 1.0 / self.speedup.likely)
        return remove(faster, self._absorbed(faster))

    def assumptions(self, graph: TaskGraph) -> tuple[str, ...]:
        return (
            f"{int(self._absorbed(graph).sum())} activations next to a normalisation cost nothing once they"
            " are part of the convolution behind them",
            "the convolutions take no longer for the statistics that they compute",
        )

    def _absorbed(self, graph: TaskGraph) -> Mask:
        """Activations right behind a normalisation; in the backward phase, right before one."""
        norms, activations = of_layers(graph, "batch norm"), of_layers(graph, "activation")
        forward = neighbours(graph, norms, among=activations, before=False)
        backward = neighbours(graph, norms, among=activations, before=True)
        return (forward & select(graph, phase=Phase.FORWARD)) | (
            backward & select(graph, phase=Phase.BACKWARD)
        )
