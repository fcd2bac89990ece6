"""What may be stored and what may run again, and what either costs: the data of the integer program."""

from __future__ import annotations

from bisect import bisect, insort
from collections.abc import Callable
from functools import cached_property
from typing import Literal

from dace.sdfg import nodes

from daceml.autodiff.activity import reads, writes
from daceml.autodiff.checkpointing.forward_steps import ForwardStep, ForwardSteps

Extent = Literal["views", "elementwise", "all"]
"""Which steps may run again: those that compute nothing, those that fusion can take in as well, or any."""

MOST_CHOICES = 1500
"""Of an integer program; with more it takes minutes."""
_MOST_STAGES = 32
_FEWEST_STAGES = 8
# Bytes of traffic that a stored byte is worth: what may as well run again does so.
_MEMORY_WEIGHT = 1e-3
# Of the largest array: what is smaller, as statistics, is stored without asking
_SMALL_SHARE = 1 / 256
# Of an array of the caller's, as a bias, of which a copy is stored
_COPY_BYTES = 2**16


class Choices:
    """Everything that the backward pass could start from.

    Args:
        extent: which steps may run again.

    Attributes:
        arrays: that may be stored, going back from what the backward pass reads.
        steps: that may run again.
        producer: array -> the step that writes it.
        stages: step of the backward pass -> its stage: equal parts of the pass, in order. What runs again
            does so once in a stage.
    """

    def __init__(self, facts: ForwardSteps, *, extent: Extent) -> None:
        self.facts, self.extent = facts, extent
        self.steps: list[ForwardStep] = []
        self.arrays: list[str] = []
        self.producer: dict[str, ForwardStep] = {}
        self.behind = [n for n in facts.order if n not in facts.ahead]
        self.forward = [n for n in facts.order if n in facts.ahead]
        self.is_behind = frozenset(self.behind)
        self._needed_in: dict[str, list[int]] = {}
        cuts = self._cuts() if extent == "all" else []
        self.stage_count = len(cuts) + 1
        self.stages = {n: bisect(cuts, i) for i, n in enumerate(self.behind)}
        self._explore()

    def _cuts(self) -> list[int]:
        """Where stages begin: where few arrays are alive, as between the layers of a network."""
        alive = [len(arrays) for arrays in self._waiting]
        apart = -(-len(self.behind) // _MOST_STAGES)
        cuts: list[int] = []
        for count in sorted(set(alive)):
            for i in (i + 1 for i, n in enumerate(alive[:-1]) if n == count):
                if all(abs(i - cut) >= apart for cut in cuts):
                    insort(cuts, i)
            if len(cuts) + 1 >= _FEWEST_STAGES:
                break
        return cuts

    @cached_property
    def _waiting(self) -> list[set[str]]:
        """After each step of the backward pass: what it has made and still reads."""
        last = {a: i for i, node in enumerate(self.behind) for a in self.facts.read_by(node)}
        found: list[set[str]] = []
        alive = set[str]()
        for i, node in enumerate(self.behind):
            alive |= {self.facts.roots[a] for a in writes(self.facts.state, node)}
            alive = {a for a in alive if last.get(a, -1) > i}
            found.append(alive)
        return found

    def _explore(self) -> None:
        waiting = [a for a in self.facts.needed if not self.at_hand(a)]
        small = _SMALL_SHARE * max(map(self.facts.array_bytes, waiting), default=0)
        seen, known = set[str](), set[nodes.Node]()
        while waiting:
            array = waiting.pop()
            if array in seen:
                continue
            seen.add(array)
            self.arrays.append(array)
            step = self.producer[array] = self.facts.step(self.facts.producers[array])
            if self.refusal(step) is None and (step.views or self.facts.array_bytes(array) > small):
                if step.node not in known:
                    known.add(step.node)
                    self.steps.append(step)
                waiting += [a for a in step.reads if not self.at_hand(a)]

    def refusal(self, step: ForwardStep) -> str | None:
        """Why a step is not among those that may run again."""
        if step.refusal is not None:
            return f"{step.label} must not run again: {step.refusal}"
        if self.extent == "views" and not step.views:
            return "recompute is 'none'"
        if self.extent == "elementwise" and not (step.elementwise or step.views):
            return f"{step.label} is not elementwise: to run it again is not cheap"
        if self.extent == "elementwise" and not step.views:
            # autograd watches what is read: a change in place that eager allows would become an error
            watched = [a for a in self.watched(step) if a not in self.copied(step)]
            if watched:
                return f"the backward pass has no other need of {watched[0]}, which may change until then"
        return None

    def watched(self, step: ForwardStep) -> list[str]:
        """What a step reads of the caller's arrays that the backward pass has no other need of."""
        return [a for a in step.reads if a in self.facts.changeable and a not in self.read_behind]

    def copied(self, step: ForwardStep) -> list[str]:
        """Small ones of those, of which the forward pass keeps a copy, for the step that runs again."""
        direct = set(reads(self.facts.state, step.node))
        return [a for a in self.watched(step) if a in direct and self.facts.array_bytes(a) <= _COPY_BYTES]

    @cached_property
    def read_behind(self) -> frozenset[str]:
        """Arrays that the backward pass reads itself, in whatever shape."""
        waiting, found = [a for n in self.behind for a in self.facts.read_by(n)], set[str]()
        while waiting:
            array = waiting.pop()
            producer = self.facts.producers.get(array)
            if array not in found and producer is not None and self.facts.step(producer).views:
                waiting += self.facts.step(producer).reads
            found.add(array)
        return frozenset(found)

    def at_hand(self, array: str) -> bool:
        """Whether an array is in memory whatever is chosen: inputs, weights, constants, results."""
        return array in self.facts.free or array in self.facts.returned or array not in self.facts.producers

    def fuses(self, step: ForwardStep) -> bool:
        """Whether copies of a step disappear in their readers."""
        wanted = [a for a in step.writes if a in self.producer]
        again = {s.node for s in self.steps}
        return all(self.facts.fusing_readers(a, self.is_behind | again) for a in wanted)

    def needed_in(self, array: str) -> list[int]:
        """Stages in which the backward pass itself reads an array."""
        if array not in self._needed_in:
            stages = {self.stages[n] for n in self.facts.readers(array, self.is_behind)}
            self._needed_in[array] = sorted(stages)
        return self._needed_in[array]

    @cached_property
    def run_stages(self) -> dict[nodes.Node, frozenset[int]]:
        """Step -> the stages in which it may run again: any up to the last that may want it; where that is
        too much to choose from, those in which it is wanted for the backward pass itself, directly or by the
        next such steps."""
        last = self._last_stage(lambda step, last: max(last[a] for a in step.writes if a in last))
        everywhere = {
            s.node: frozenset(range(max(last[a] for a in s.writes if a in last) + 1)) for s in self.steps
        }
        if len(self.arrays) + sum(map(len, everywhere.values())) <= MOST_CHOICES:
            return everywhere
        wanted: dict[nodes.Node, frozenset[int]] = {}
        near: dict[nodes.Node, frozenset[int]] = {}
        for step in self._steps_backward():
            own = frozenset(t for a in step.writes if a in self.producer for t in self.needed_in(a))
            after = (wanted[n] for a in step.writes for n in self.facts.readers(a, wanted))
            near[step.node] = own.union(*after)
            wanted[step.node] = own or near[step.node]
        return near

    @cached_property
    def last_stage(self) -> dict[str, int]:
        """Array -> the last stage that may read it: the pass itself, or a step that runs again for it."""
        return self._last_stage(lambda step, _: max(self.run_stages[step.node], default=0))

    def _last_stage(self, runs_until: Callable[[ForwardStep, dict[str, int]], int]) -> dict[str, int]:
        last = {a: max(self.needed_in(a), default=0) for a in self.arrays}
        for step in self._steps_backward():
            latest = runs_until(step, last)
            for array in step.reads:
                if array in last:
                    last[array] = max(last[array], latest)
        return last

    def _steps_backward(self) -> list[ForwardStep]:
        """Steps that may run again, the last one of the forward pass first."""
        place = {node: i for i, node in enumerate(self.forward)}
        return sorted(self.steps, key=lambda s: -place[s.node])

    @cached_property
    def own_bytes(self) -> list[int]:
        """Stage -> the most bytes that the backward pass's own arrays and calls take at once in it."""
        facts = self.facts
        most, results, before = [0] * self.stage_count, set[str](), set[str]()
        for i, node in enumerate(self.behind):
            written = {facts.roots[a] for a in writes(facts.state, node)}
            arrays = sum(map(facts.array_bytes, before | written | results))
            stage = self.stages[node]
            most[stage] = max(most[stage], arrays + facts.temporary_bytes(node))
            before = self._waiting[i]
            results |= {a for a in written if a not in before}  # gradients have no reader
        return most

    @cached_property
    def step_cost(self) -> float:
        """About what a training step costs, of which the backward pass is two thirds."""
        forward = [self.facts.step(node) for node in self.forward]
        return 3 * sum(step.computing + step.moving for step in forward if not step.views)

    def storing_cost(self, array: str) -> float:
        """Bytes that move because an array is stored: its read, and its write where fusion would spare it."""
        readers = set(self.facts.readers(array, self.facts.ahead))
        spared = len(readers) == 1 and self.producer[array].elementwise
        spared = spared and self.facts.fusing_readers(array, readers)
        return self.facts.array_bytes(array) * ((2 if spared else 1) + _MEMORY_WEIGHT)

    def running_cost(self, step: ForwardStep) -> float:
        """What it takes to run a step once more."""
        if step.views:
            return 0.0
        if not step.elementwise:
            return step.computing + step.moving
        alone = [a for a in step.writes if not self.facts.fusing_readers(a, self.is_behind)]
        fetched = [a for a in step.reads if self.at_hand(a) and not self.facts.readers(a, self.is_behind)]
        written, read = (sum(map(self.facts.array_bytes, arrays)) for arrays in (alone, fetched))
        return step.computing + 2 * written + read
