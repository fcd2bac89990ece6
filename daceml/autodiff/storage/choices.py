"""What may be stored and what may run again, and what either costs: the data of the integer program."""

from __future__ import annotations

from collections.abc import Collection

from dace.sdfg import nodes

from daceml.autodiff.storage.forward_steps import ForwardStep, ForwardSteps

_STAGES = 16
# Bytes of traffic that a stored byte is worth: what may as well run again does so.
_MEMORY_WEIGHT = 1e-3


class Choices:
    """Everything that the backward pass could start from.

    Args:
        everything: whether any step may run again, else only elementwise ones.

    Attributes:
        arrays: that may be stored, going back from what the backward pass reads.
        steps: that may run again.
        producer: array -> the step that writes it.
        stages: step of the backward pass -> its stage: equal parts of the pass, in order. What runs again
            does so once in a stage.
    """

    def __init__(self, facts: ForwardSteps, *, everything: bool) -> None:
        self.facts, self.everything = facts, everything
        self.steps: list[ForwardStep] = []
        self.arrays: list[str] = []
        self.producer: dict[str, ForwardStep] = {}
        self.behind = [n for n in facts.order if n not in facts.ahead]
        self.forward = [n for n in facts.order if n in facts.ahead]
        self.stage_count = min(_STAGES, len(self.behind)) if everything else 1
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
        if not self.everything and not step.elementwise:
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

    def storing_cost(self, array: str) -> float:
        """Bytes that move because an array is stored: its read, and its write where fusion would spare it."""
        readers = self.readers(array, self.forward)
        spared = len(readers) == 1 and self.producer[array].elementwise
        spared = spared and self.facts.fusing_readers(array, readers)
        return self.facts.array_bytes(array) * ((2 if spared else 1) + _MEMORY_WEIGHT)

    def running_cost(self, step: ForwardStep) -> float:
        """What it takes to run a step once more."""
        if not step.elementwise:
            return step.computing + step.moving
        alone = [a for a in step.writes if not self.facts.fusing_readers(a, self.behind)]
        fetched = [a for a in step.reads if self.at_hand(a) and not self.readers(a, self.behind)]
        written, read = (sum(map(self.facts.array_bytes, arrays)) for arrays in (alone, fetched))
        return step.computing + 2 * written + read

    def readers(self, array: str, among: Collection[nodes.Node]) -> list[nodes.Node]:
        """Steps that read an array."""
        return [n for n in among if array in self.facts.read_by(n)]
