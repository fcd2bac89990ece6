"""A fused optimizer: one kernel, or operator, updates all weights and moves each tensor once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from daceml.simulation.graph import NOTHING, Floats, Ints, Mask, TaskGraph
from daceml.simulation.primitives.fuse import cut_where_awaited, fuse_groups
from daceml.simulation.primitives.host_work import other_work_us
from daceml.simulation.primitives.select import select
from daceml.simulation.task import EdgeKind, Phase
from daceml.simulation.whatif.blocks import launch_of
from daceml.simulation.whatif.kernel_classes import FILL, FUSED_OPTIMIZER
from daceml.simulation.whatif.optimization import Estimate, Optimization
from daceml.simulation.whatif.work import has_device, work

# Adam reads weight, gradient and two moments and writes all but the gradient.
_WORDS_MOVED = 7
_WORD_BYTES = 4
_FEW = 3  # kernels of a step: nothing is left to fuse


@dataclass(frozen=True, kw_only=True)
class FusedAdam(Optimization):
    """The work of the optimizer's update as one task a step; gradients that are set to zero stay apart.

    Attributes:
        moved_share: of the bytes that all tasks move, what the fused one moves. Element by element Adam moves
            about 18 words a weight and the fused one 7; at worst nothing is saved, as Daydream assumes.
        floor_us: of each task, what is not spent on moving bytes.
        python_us: what the one call takes on the CPU before it launches; never more than what it replaces.
        dispatch_us: of each call that goes and of the time before it, what dispatch takes at most, as of
            `CompiledRegion`; the rest is other work of the host, and stays.
        parameters: how many weights there are, if known: then `bytes_per_s` gives the duration.
        bytes_per_s: that the device's memory moves.
    """

    option: ClassVar[str] = "fused-adam"
    title: ClassVar[str] = "fused optimizer"
    source: ClassVar[str] = (
        "Zhu et al., Daydream (ATC '20), Algorithm 4, where the sum of all durations stays"
    )

    moved_share: Estimate = Estimate(0.45, fast=7 / 18, slow=1.0)
    floor_us: Estimate = Estimate(1.5, fast=2.0, slow=1.0)
    python_us: Estimate = Estimate(600.0, fast=150.0, slow=1500.0)
    dispatch_us: Estimate = Estimate(200.0, fast=350.0, slow=50.0)
    parameters: float | None = None
    bytes_per_s: float | None = None

    def check(self, graph: TaskGraph) -> str | None:
        update = self._update(graph)
        if not update.any():
            return "no work of the run belongs to an optimizer"
        duration_us = graph.tasks.duration_us
        fused_us = duration_us[update & select(graph, name=FUSED_OPTIMIZER)].sum()
        if 2 * fused_us > duration_us[update].sum():
            return "the optimizer is fused already"
        largest = int(np.bincount(self._groups(graph)[update]).max())
        if largest <= _FEW:
            return f"the optimizer runs {largest} tasks a step: nothing is left to fuse"
        if (self.parameters is None) != (self.bytes_per_s is None):
            return "the number of parameters and the rate of the memory are only of use together"
        return None

    def apply(self, graph: TaskGraph) -> TaskGraph:
        group = self._groups(graph)
        fused = fuse_groups(graph, group, self._duration_us(graph, group), name="fused optimizer")
        most_us = self.dispatch_us.likely
        other_us = other_work_us(graph, fused, most_us)
        fused = fused.with_times(gap_us=fused.tasks.gap_us + other_us)
        other_us += np.maximum(fused.tasks.gap_us - other_us - most_us, 0.0)
        whole = np.flatnonzero(fused.where_name(lambda name: name == "fused optimizer"))
        number = group[graph.index_of(fused.tasks.key[whole])]
        python_us = np.minimum(self.python_us.likely, self._cpu_us(graph, group)[number])
        if not has_device(fused):
            return self._with_python(fused, whole, python_us, other_us)
        calls = launch_of(fused)[whole]
        return self._with_python(fused, calls[calls >= 0], python_us[calls >= 0], other_us)

    def _with_python(self, graph: TaskGraph, calls: Ints, python_us: Floats, other_us: Floats) -> TaskGraph:
        """What Python does begins once all that the call waits for is there: it is the call's own time.

        Args:
            other_us: [n] of the time before each task, what is no dispatch.
        """
        duration_us, gap_us = graph.tasks.duration_us.copy(), graph.tasks.gap_us.copy()
        duration_us[calls] += python_us
        later = calls[graph.structure.before[calls] >= 0]
        gap_us[later] = other_us[later]
        longer_us = np.zeros(len(graph))
        longer_us[calls] = python_us
        from_call = (graph.edges.kind == EdgeKind.LAUNCH) & graph.edges.from_start
        lag_us = graph.edges.lag_us + np.where(from_call, longer_us[graph.edges.source], 0.0)
        return graph.with_times(duration_us=duration_us, gap_us=gap_us, lag_us=lag_us)

    def assumptions(self, graph: TaskGraph) -> tuple[str, ...]:
        if self.parameters is not None:
            return ("the fused kernel moves 28 bytes a weight: all of Adam's state in float32",)
        return (
            f"the fused kernel moves {self.moved_share.likely:.0%} of what the kernels that it replaces move",
        )

    def _update(self, graph: TaskGraph) -> Mask:
        zeroing = select(graph, name=FILL) | select(graph, operator=r"zero")
        return work(graph) & select(graph, phase=Phase.OPTIMIZER) & ~zeroing

    def _groups(self, graph: TaskGraph) -> Ints:
        """[n] one number for the update of each step and lane, more where others wait for a part of it."""
        update = np.flatnonzero(self._update(graph))
        places = graph.tasks.step[update] * len(graph.lanes) + graph.tasks.lane[update]
        group = np.full(len(graph), NOTHING, np.int64)
        group[update] = np.unique(places, return_inverse=True)[1]
        return cut_where_awaited(graph, group)

    def _duration_us(self, graph: TaskGraph, group: Ints) -> Floats:
        members = np.flatnonzero(group != NOTHING)
        duration_us, of = graph.tasks.duration_us[members], group[members]
        if self.parameters is not None and self.bytes_per_s is not None:
            whole_us = self.parameters * _WORDS_MOVED * _WORD_BYTES / self.bytes_per_s * 1e6
            sums_us = _sums(of, duration_us)
            step = graph.tasks.step[members[np.unique(of, return_index=True)[1]]]
            of_step_us = np.array([sums_us[step == own].sum() for own in step])
            return whole_us * sums_us / np.maximum(of_step_us, 1e-12)
        moving_us = np.maximum(duration_us - self.floor_us.likely, 0.0)
        once_us = np.minimum(self.floor_us.likely, _sums(of, duration_us))
        return once_us + _sums(of, moving_us) * self.moved_share.likely

    def _cpu_us(self, graph: TaskGraph, group: Ints) -> Floats:
        """Of each group, what dispatch takes on the CPU: its calls, or what lies between its operators."""
        members = np.flatnonzero(group != NOTHING)
        most_us = self.dispatch_us.likely
        gap_us = np.clip(graph.tasks.gap_us, 0.0, most_us)
        if not has_device(graph):
            return _sums(group[members], gap_us[members])
        calls = launch_of(graph)[members]
        called_us = np.minimum(graph.tasks.duration_us[calls], most_us)
        taken_us = np.where(calls >= 0, gap_us[calls] + called_us, 0.0)
        return _sums(group[members], taken_us)


def _sums(group: Ints, values: Floats) -> Floats:
    """[groups] the sum of the values of each."""
    return np.bincount(group, values).astype(np.float64)
