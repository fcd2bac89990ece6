"""A compiled region: kernels that only move data are fused with those next to them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from daceml.simulation.graph import NOTHING, Floats, Ints, Mask, TaskGraph
from daceml.simulation.primitives.fuse import cut_where_awaited, fuse_groups
from daceml.simulation.primitives.host_work import other_work_us
from daceml.simulation.primitives.select import select
from daceml.simulation.task import Phase
from daceml.simulation.whatif.blocks import launch_of
from daceml.simulation.whatif.optimization import Estimate, Optimization
from daceml.simulation.whatif.work import computes, has_device, work


@dataclass(frozen=True, kw_only=True)
class CompiledRegion(Optimization):
    """Runs of work bound by memory as one task each; products stay as they are.

    Attributes:
        layers: of the region, as a regular expression; None is the whole model.
        phases: of the region.
        kept_share: of the time of a run's tasks but its longest, what the fused one still takes: operands
            that are no results of the run are read all the same.
        floor_us: of each task, what is not spent on moving bytes.
        launch_gap_us: what passes on the CPU between two launches of compiled code, at most.
        dispatch_us: of the time before a launch, what the framework's dispatch takes at most, as of
            `CudaGraphs`.
        costs_us: "layer" or "layer backward" -> microseconds, where the compiler's own costs are known: all
            work of the layer in that phase becomes one task that lasts so long.
        between_products_us: what compiled kernels take before the first product of the region in a step, and
            after each; fused kernels span layers, but the products of a compiled program stand in the order
            in which the run had them. With it, `costs_us` and `kept_share` are of no use.
    """

    option: ClassVar[str] = "compile"
    title: ClassVar[str] = "compiled region"
    source: ClassVar[str] = "bytes that fusion saves: Ansel et al., PyTorch 2 (ASPLOS '24), section 4"

    layers: str | None = None
    phases: tuple[Phase, ...] = (Phase.FORWARD, Phase.BACKWARD)
    kept_share: Estimate = Estimate(0.35, fast=0.1, slow=0.8)
    floor_us: Estimate = Estimate(1.5, fast=2.0, slow=1.0)
    launch_gap_us: Estimate = Estimate(6.0, fast=3.0, slow=12.0)
    dispatch_us: Estimate = Estimate(200.0, fast=350.0, slow=50.0)
    costs_us: Mapping[str, float] = field(default_factory=dict[str, float])
    between_products_us: Sequence[float] = ()

    @property
    def may_cost(self) -> bool:
        return bool(self.costs_us or self.between_products_us)  # the compiler's own figures

    def check(self, graph: TaskGraph) -> str | None:
        if not self._region(graph).any():
            return "no work of the run belongs to the chosen layers and phases"
        for layer in self.costs_us:
            if not self._priced(graph, layer).any():
                return f"no work of the run belongs to {layer!r}, for which a cost is given"
        if self.between_products_us and (reason := self._other_products(graph)) is not None:
            return reason
        group, _ = self._groups(graph)
        if not (np.bincount(group[group != NOTHING], minlength=1) > 1).any():
            return "no two tasks that only move data stand next to each other in the region"
        return None

    def apply(self, graph: TaskGraph) -> TaskGraph:
        group, duration_us = self._groups(graph)
        region_keys = graph.tasks.key[self._region(graph)]
        # A compiler's own costs cover work that stands apart; what a run of neighbors is fused to begins as
        # the first of them did.
        fused = fuse_groups(graph, group, duration_us, where="last" if self.may_cost else "first")
        region = np.isin(fused.tasks.key, region_keys)
        if has_device(fused):
            calls = launch_of(fused)[region]
            region = np.zeros(len(fused), np.bool_)
            region[calls[calls >= 0]] = True
        region &= fused.structure.before >= 0  # the first gap of a lane says when it begins
        gap_us = fused.tasks.gap_us
        dispatch_us = np.minimum(gap_us, self.dispatch_us.likely)
        saved_us = np.maximum(dispatch_us - self.launch_gap_us.likely, 0.0)
        gap_us = np.where(region, gap_us - saved_us, gap_us)
        return fused.with_times(gap_us=gap_us + other_work_us(graph, fused, self.dispatch_us.likely))

    def assumptions(self, graph: TaskGraph) -> tuple[str, ...]:
        assumed = ["checks of the compiled code's guards fit between its launches"]
        if self.between_products_us:
            assumed.append("products take what they took, and kernels between them what the compiler counts")
        elif not self.costs_us:
            assumed.append(
                f"a fused task takes {self.kept_share.likely:.0%} of all that it fuses but the longest"
            )
        assumed.append(
            f"before each launch of the region {self.dispatch_us.likely:g} us at most are dispatch, which"
            " goes; the rest is other work of the host, and stays"
        )
        return tuple(assumed)

    def _region(self, graph: TaskGraph) -> Mask:
        return work(graph) & select(graph, layer=self.layers, phase=self.phases)

    def _priced(self, graph: TaskGraph, layer: str) -> Mask:
        name, phase = layer, Phase.FORWARD
        if layer.endswith(" backward"):
            name, phase = layer.removesuffix(" backward"), Phase.BACKWARD
        return work(graph) & select(graph, layer=lambda known: known == name, phase=phase)

    def _groups(self, graph: TaskGraph) -> tuple[Ints, Floats]:
        """[n] the number of each run of work that becomes one task, and how long each lasts."""
        if self.between_products_us:
            return self._groups_between_products(graph)
        group = np.full(len(graph), NOTHING, np.int64)
        cost_us: list[float] = []
        for layer, whole_us in self.costs_us.items():
            priced = np.flatnonzero(self._priced(graph, layer))
            for place in np.unique(graph.tasks.step[priced] * len(graph.lanes) + graph.tasks.lane[priced]):
                own = graph.tasks.step[priced] * len(graph.lanes) + graph.tasks.lane[priced] == place
                group[priced[own]] = len(cost_us)
                cost_us.append(whole_us)
        runs = self._runs(graph, self._region(graph) & ~computes(graph) & (group == NOTHING))
        members = runs != NOTHING
        group[members] = runs[members] + len(cost_us)
        fused_us = self._fused_us(graph, members, runs[members])
        return group, np.concatenate([np.array(cost_us), fused_us])

    def _steps(self, graph: TaskGraph) -> list[NDArray[np.intp]]:
        """The work of the region, in the order of its lane, of each step and lane that has some."""
        region = np.flatnonzero(self._region(graph))
        place = graph.tasks.step[region] * len(graph.lanes) + graph.tasks.lane[region]
        return [region[place == own] for own in np.unique(place)]

    def _other_products(self, graph: TaskGraph) -> str | None:
        expected, products = len(self.between_products_us) - 1, computes(graph)
        for members in self._steps(graph):
            found = int(products[members].sum())
            if found != expected:
                return (
                    f"a step of the run has {found} products in the region, the compiled program {expected}"
                )
        return None

    def _groups_between_products(self, graph: TaskGraph) -> tuple[Ints, Floats]:
        group = np.full(len(graph), NOTHING, np.int64)
        products = computes(graph)
        cost_us: list[float] = []
        for members in self._steps(graph):
            place = np.cumsum(products[members])[~products[members]]
            others = members[~products[members]]
            present = np.unique(place)
            # Where the run had nothing between two products (a bias that became a kernel), what compiled
            # kernels take there counts to the work before it.
            owner = np.maximum(
                np.searchsorted(present, np.arange(len(self.between_products_us)), "right") - 1, 0
            )
            group[others] = len(cost_us) + np.searchsorted(present, place)
            cost_us += np.bincount(owner, self.between_products_us, minlength=len(present)).tolist()
        return group, np.array(cost_us)

    def _runs(self, graph: TaskGraph, fusible: Mask) -> Ints:
        """[n] the number of each run of work that may be fused."""
        tasks, before = graph.tasks, graph.structure.before
        same = (before >= 0) & fusible[before] & fusible
        for column in (tasks.step, tasks.phase):
            same &= column[before] == column
        order = np.argsort(tasks.lane, kind="stable")
        run = np.full(len(graph), NOTHING, np.int64)
        run[order] = np.cumsum(~same[order])
        return cut_where_awaited(graph, np.where(fusible, run, NOTHING))

    def _fused_us(self, graph: TaskGraph, members: Mask, run: Ints) -> Floats:
        """Of each run the longest task, and a share of what the others move; at most what the run took."""
        if not len(run):
            return np.zeros(0)
        duration_us, gap_us = graph.tasks.duration_us[members], graph.tasks.gap_us[members].copy()
        gap_us[np.unique(run, return_index=True)[1]] = 0.0  # the first gap of a run stays before it
        taken_us = np.maximum(np.bincount(run, duration_us + gap_us), 0.0)
        longest_us = np.zeros(int(run.max()) + 1)
        np.maximum.at(longest_us, run, duration_us)
        moving_us = np.bincount(run, np.maximum(duration_us - self.floor_us.likely, 0.0))
        rest_us = moving_us - np.maximum(longest_us - self.floor_us.likely, 0.0)
        return np.minimum(longest_us + rest_us * self.kept_share.likely, taken_us)
