"""What may be stored and what may run again, and what either costs: the data of the integer program."""

from __future__ import annotations

from collections.abc import Collection
from functools import cached_property
from typing import Literal

from dace.sdfg import nodes

from daceml.autodiff.activity import writes
from daceml.autodiff.storage.forward_steps import ForwardStep, ForwardSteps

Extent = Literal["views", "elementwise", "all"]
"""Which steps may run again: those that compute nothing, those that fusion can take in as well, or any."""

_STAGES = 16
# Bytes of traffic that a stored byte is worth: what may as well run again does so.
_MEMORY_WEIGHT = 1e-3


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
        self.stage_count = min(_STAGES, len(self.behind)) if extent == "all" else 1
        self.stages = {n: i * self.stage_count // len(self.behind) for i, n in enumerate(self.behind)}
        self._explore()

    def _explore(self) -> None:
        waiting = [a for a in self.facts.needed if not self.at_hand(a)]
        seen, known = set[str](), set[nodes.Node]()
        while waiting:
            array = waiting.pop()
            if array in seen:
                continue
            seen.add(array)
            self.arrays.append(array)
            step = self.producer[array] = self.facts.step(self.facts.producers[array])
            if self.refusal(step) is None:
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
        return None

    def at_hand(self, array: str) -> bool:
        """Whether an array is in memory whatever is chosen: inputs, weights, constants, results."""
        return array in self.facts.free or array in self.facts.returned or array not in self.facts.producers

    def fuses(self, step: ForwardStep) -> bool:
        """Whether copies of a step disappear in their readers."""
        wanted = [a for a in step.writes if a in self.producer]
        again = [s.node for s in self.steps]
        return all(self.facts.fusing_readers(a, [*self.behind, *again]) for a in wanted)

    def needed_in(self, array: str) -> list[int]:
        """Stages in which the backward pass itself reads an array."""
        return sorted({self.stages[n] for n in self.readers(array, self.behind)})

    @cached_property
    def last_stage(self) -> dict[str, int]:
        """Array -> the last stage that may read it: the pass itself, or a step that runs again for it."""
        last = {a: max(self.needed_in(a), default=0) for a in self.arrays}
        for step in sorted(self.steps, key=lambda s: -self.forward.index(s.node)):
            latest = max(last[a] for a in step.writes if a in last)
            for array in step.reads:
                if array in last:
                    last[array] = max(last[array], latest)
        return last

    @cached_property
    def own_bytes(self) -> list[int]:
        """Stage -> the most bytes of the backward pass's own arrays that are alive at once in it."""
        facts = self.facts
        last = {a: i for i, node in enumerate(self.behind) for a in facts.read_by(node)}
        most, alive = [0] * self.stage_count, set[str]()
        for i, node in enumerate(self.behind):
            alive |= {facts.roots[a] for a in writes(facts.state, node)}
            stage = self.stages[node]
            most[stage] = max(most[stage], sum(map(facts.array_bytes, alive)))
            alive = {a for a in alive if last.get(a, len(self.behind)) > i}  # gradients have no reader
        return most

    def storing_cost(self, array: str) -> float:
        """Bytes that move because an array is stored: its read, and its write where fusion would spare it."""
        readers = self.readers(array, self.forward)
        spared = len(readers) == 1 and self.producer[array].elementwise
        spared = spared and self.facts.fusing_readers(array, readers)
        return self.facts.array_bytes(array) * ((2 if spared else 1) + _MEMORY_WEIGHT)

    def running_cost(self, step: ForwardStep) -> float:
        """What it takes to run a step once more."""
        if step.views:
            return 0.0
        if not step.elementwise:
            return step.computing + step.moving
        alone = [a for a in step.writes if not self.facts.fusing_readers(a, self.behind)]
        fetched = [a for a in step.reads if self.at_hand(a) and not self.readers(a, self.behind)]
        written, read = (sum(map(self.facts.array_bytes, arrays)) for arrays in (alone, fetched))
        return step.computing + 2 * written + read

    def readers(self, array: str, among: Collection[nodes.Node]) -> list[nodes.Node]:
        """Steps that read an array."""
        return [n for n in among if array in self.facts.read_by(n)]
