"""The integer program that chooses what a training step stores, and when it computes the rest again.

Source: Jain et al., Checkmate (MLSys 2020), for recomputation as an integer program over stages and for the
rounding of its relaxation; here stages are parts of the backward pass alone, and what is stored stays stored.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from dace.sdfg import nodes

from daceml.autodiff.checkpointing.checkpoint_costs import MOST_CHOICES

if TYPE_CHECKING:
    from daceml.autodiff.checkpointing.checkpoint_costs import Choices

_MOST_NODES = 1000  # of the branch-and-bound tree: the same choice on every machine, busy or not
_TIME_LIMIT_S = 120.0
_GAP = 0.03
_THRESHOLDS = (0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.999)
_UNIT_BYTES = 1e6  # numbers that a solver likes


@dataclass(frozen=True, kw_only=True)
class Storage:
    """A choice.

    Attributes:
        stored: arrays that the forward pass keeps.
        again: step -> the stages in which it runs again.
    """

    stored: frozenset[str]
    again: dict[nodes.Node, tuple[int, ...]]


def choose_storage(choices: Choices, limit: int | None, *, spare: float = 0.0) -> Storage:
    """The choice that costs least; where none keeps the limit, the one that is nearest to it.

    Args:
        limit: bytes, in each stage, of what is stored and of what the backward pass has made; None for none.
        spare: how much more than the least it may cost, if it stores less; without a limit.
    """
    if not choices.arrays:
        return Storage(stored=frozenset(), again={})
    program = _Program(choices)
    if limit is None:
        found = program.best()
        if found is not None and spare:
            found = program.storing_least(program.cost(found) + spare) or found
    else:
        program.limit_stages()
        found = program.best(limit) or program.smallest()
    # no time to find anything better
    return found or Storage(stored=frozenset(choices.arrays), again={})


class _Program:
    """Columns: an array is stored; a step runs in a stage; an array is held from a stage to the next."""

    def __init__(self, choices: Choices) -> None:
        self.choices = choices
        self.costs: list[float] = []
        self.whole: list[bool] = []
        self.rows: list[dict[int, float]] = []
        self.lower: list[float] = []
        self.upper: list[float] = []
        self.most: int | None = None
        stages = range(choices.stage_count)
        self.stored = {a: self._column(choices.storing_cost(a)) for a in choices.arrays}
        self.runs = {
            (s.node, t): self._column(cost)
            for s in choices.steps
            for cost in [choices.running_cost(s)]
            for t in sorted(choices.run_stages[s.node])
        }
        self.held = {
            (a, t): self._column(0.0, whole=False)
            for a in choices.arrays
            for t in stages[1:]
            if (choices.producer[a].node, t) in self.runs
        }
        for array in choices.arrays:
            for stage in choices.needed_in(array):
                self._row(self._available(array, stage), lower=1)
        for (array, stage), column in self.held.items():
            before = {c: v for c, v in self._available(array, stage - 1).items() if c != self.stored[array]}
            self._row({**before, column: -1.0}, lower=0)
        for step in choices.steps:
            for array in step.reads:
                for stage in stages if array in self.stored else ():
                    if (run := self.runs.get((step.node, stage))) is not None:
                        self._row({**self._available(array, stage), run: -1.0}, lower=0)

    @property
    def large(self) -> bool:
        """Whether the relaxation has to do."""
        return sum(self.whole) > MOST_CHOICES

    def _column(self, cost: float, *, whole: bool = True) -> int:
        self.costs.append(cost)
        self.whole.append(whole)
        return len(self.costs) - 1

    def _row(
        self, row: dict[int, float], *, lower: float = -float("inf"), upper: float = float("inf")
    ) -> None:
        self.rows.append(row)
        self.lower.append(lower)
        self.upper.append(upper)

    def _available(self, array: str, stage: int) -> dict[int, float]:
        """What makes an array available in a stage: the sum of these is at least 1."""
        found = (
            self.stored.get(array),
            self.runs.get((self.choices.producer[array].node, stage)),
            self.held.get((array, stage)),
        )
        return {column: 1.0 for column in found if column is not None}

    def limit_stages(self) -> None:
        """A column for the most bytes that are in use at once, and a row a stage that says so.

        An array is stored until the last stage that may read it.
        """
        size_of = self.choices.facts.array_bytes
        self.most = self._column(0.0, whole=False)
        for stage in range(self.choices.stage_count):
            row = {
                column: size_of(array) / _UNIT_BYTES
                for array, column in self.stored.items()
                if self.choices.last_stage[array] >= stage
            }
            for array in self.choices.arrays:
                if (column := self.held.get((array, stage))) is not None:
                    row[column] = size_of(array) / _UNIT_BYTES
            for step in self.choices.steps:
                # all results are written where a step runs; what fusion takes in is not
                inside = step.elementwise and self.choices.fuses(step)
                if not inside and (run := self.runs.get((step.node, stage))) is not None:
                    row[run] = sum(map(size_of, step.writes)) / _UNIT_BYTES
            self._row({**row, self.most: -1.0}, upper=-self.choices.own_bytes[stage] / _UNIT_BYTES)

    def best(self, limit: int | None = None) -> Storage | None:
        """The choice that costs least within a limit."""
        return self._solved(self.costs, limit)

    def smallest(self) -> Storage | None:
        """The choice with the fewest bytes in use at once."""
        costs = [c * 1e-12 for c in self.costs]
        assert self.most is not None
        costs[self.most] = 1.0
        return self._solved(costs, None)

    def storing_least(self, most_cost: float) -> Storage | None:
        """The choice that stores the fewest bytes for at most this cost."""
        if self.large:
            return None
        self._row(dict(enumerate(self.costs)), upper=most_cost)
        costs = [c * 1e-6 for c in self.costs]
        for array, column in self.stored.items():
            if not self.choices.producer[array].views:
                costs[column] += self.choices.facts.array_bytes(array)
        return self._solved(costs, None)

    def _solved(self, costs: list[float], limit: int | None) -> Storage | None:
        values = None if self.large else self._values(costs, limit)
        if values is None:
            relaxed = self._values(costs, limit, whole=False)
            return None if relaxed is None else self._rounded(relaxed, limit or 0)
        again: dict[nodes.Node, tuple[int, ...]] = {}
        for (node, stage), column in self.runs.items():
            if values[column] > 0.5:
                again[node] = (*again.get(node, ()), stage)
        return Storage(stored=frozenset(a for a, c in self.stored.items() if values[c] > 0.5), again=again)

    def _rounded(self, values: np.ndarray, limit: int) -> Storage:
        """A relaxed solution made whole: of several thresholds, the one that exceeds the limit least, and
        costs least."""
        found: list[tuple[int, float, int, Storage]] = []
        for number, threshold in enumerate(_THRESHOLDS):
            storage, most = self._completed(values, threshold)
            found.append((max(most - limit, 0), self.cost(storage), number, storage))
        return min(found, key=lambda f: f[:3])[-1]

    def _completed(self, values: np.ndarray, threshold: float) -> tuple[Storage, int]:
        """What a relaxed solution stores and holds to this part at least, with the runs that this needs.

        Returns:
            it, and the most bytes in use at once.
        """
        stored = {a for a, column in self.stored.items() if values[column] >= threshold}
        again: dict[nodes.Node, tuple[int, ...]] = {}
        until: dict[tuple[nodes.Node, int], dict[str, int]] = {}  # run -> array -> last stage that reads it
        for stage in range(self.choices.stage_count):
            waiting = [a for a in self.choices.arrays if stage in self.choices.needed_in(a)]
            while waiting:
                array = waiting.pop()
                step = self.choices.producer[array]
                if array in stored:
                    continue
                runs = again.get(step.node, ())
                held = self.held.get((array, stage))
                if stage not in runs and not (
                    runs and held is not None and values[held] >= min(threshold, 0.5)
                ):
                    if (step.node, stage) not in self.runs:
                        stored.add(array)
                        continue
                    again[step.node] = runs = (*runs, stage)
                    waiting += [a for a in step.reads if a in self.stored]
                until.setdefault((step.node, runs[-1]), {})[array] = stage
        storage = Storage(stored=frozenset(stored), again=again)
        return storage, self._most(storage, until)

    def _most(self, storage: Storage, until: dict[tuple[nodes.Node, int], dict[str, int]]) -> int:
        """Bytes that are in use in the stage where these are most."""
        size_of = self.choices.facts.array_bytes
        in_use = list(self.choices.own_bytes)
        for array in storage.stored:
            for stage in range(self.choices.last_stage[array] + 1):
                in_use[stage] += size_of(array)
        for (node, first), arrays in until.items():
            step = self.choices.facts.step(node)
            if not (step.elementwise and self.choices.fuses(step)):
                in_use[first] += sum(size_of(a) for a in step.writes if a not in arrays)
                for array, last in arrays.items():
                    for stage in range(first, last + 1):
                        in_use[stage] += size_of(array)
        return max(in_use)

    def cost(self, storage: Storage) -> float:
        """What a choice costs."""
        kept = sum(self.costs[self.stored[a]] for a in storage.stored)
        return kept + sum(self.costs[self.runs[n, t]] for n, stages in storage.again.items() for t in stages)

    def _values(self, costs: list[float], limit: int | None, *, whole: bool = True) -> np.ndarray | None:
        from scipy.optimize import Bounds, LinearConstraint, milp
        from scipy.sparse import coo_array

        entries = [(i, c, v) for i, row in enumerate(self.rows) for c, v in row.items()]
        where, columns, values = (np.array(part) for part in zip(*entries, strict=True))
        matrix = coo_array((values, (where, columns)), shape=(len(self.rows), len(self.costs)))
        highest = np.ones(len(costs))
        if self.most is not None:
            highest[self.most] = np.inf if limit is None else limit / _UNIT_BYTES
        answer = milp(
            np.array(costs) / (max(costs) or 1.0),  # empty arrays cost nothing
            constraints=LinearConstraint(matrix.tocsr(), self.lower, self.upper),  # pyright: ignore
            integrality=np.array(self.whole, dtype=int) * whole,
            bounds=Bounds(0, highest),  # pyright: ignore[reportArgumentType]
            options={"node_limit": _MOST_NODES, "time_limit": _TIME_LIMIT_S, "mip_rel_gap": _GAP},
        )
        return answer.x
