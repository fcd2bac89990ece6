"""MetaFlow: layers that a search over graph substitutions takes out or makes larger or smaller."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from daceml.simulation.graph import Mask, TaskGraph
from daceml.simulation.primitives.remove import remove
from daceml.simulation.primitives.scale import scale
from daceml.simulation.primitives.select import select
from daceml.simulation.whatif.optimization import Optimization
from daceml.simulation.whatif.work import work


@dataclass(frozen=True, kw_only=True)
class MetaFlow(Optimization):
    """Layers taken out, or scaled, as a policy says.

    Attributes:
        remove: layers to take out, as regular expressions of their names.
        scale: layer -> how many times as long it takes.
    """

    option: ClassVar[str] = "metaflow"
    title: ClassVar[str] = "MetaFlow"
    source: ClassVar[str] = "Jia et al., MetaFlow (SysML '19); Zhu et al., Daydream (ATC '20), Algorithm 9"

    remove: tuple[str, ...] = ()
    scale: Mapping[str, float] = field(default_factory=dict[str, float])

    @property
    def may_cost(self) -> bool:
        return any(factor > 1 for factor in self.scale.values())

    def check(self, graph: TaskGraph) -> str | None:
        if not self.remove and not self.scale:
            return "no layer was named to remove or to scale"
        for layer in (*self.remove, *self.scale):
            if not self._of(graph, layer).any():
                return f"no work of the run belongs to a layer {layer!r}"
        for layer, factor in self.scale.items():
            if not 0 <= factor < np.inf:
                return f"layer {layer!r} cannot take {factor} times as long"
        if not (work(graph) & ~self._removed(graph)).any():
            return "the layers to remove do all of the run's work: no step remains"
        return None

    def apply(self, graph: TaskGraph) -> TaskGraph:
        for layer, factor in self.scale.items():
            graph = scale(graph, self._of(graph, layer), factor)
        return remove(graph, self._removed(graph))

    def assumptions(self, graph: TaskGraph) -> tuple[str, ...]:
        return ("the optimizer's work stays: it is not told apart by layer",)

    def _removed(self, graph: TaskGraph) -> Mask:
        gone = np.zeros(len(graph), np.bool_)
        for layer in self.remove:
            gone |= self._of(graph, layer)
        return gone

    def _of(self, graph: TaskGraph, layer: str) -> Mask:
        return work(graph) & select(graph, layer=layer)
