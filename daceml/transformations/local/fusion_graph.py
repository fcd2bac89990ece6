"""The graph that fusion works on: groups of maps, arrays and other steps, and what stands between two.

Two groups may become one unless a path leads from one to the other through a third step. Units are kept in a
topological order, so that paths are looked for between two places only.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import dace
from dace.sdfg import nodes

from daceml.sdfg.program_order import program_order
from daceml.transformations.local.fusion_groups import Group


@dataclass(eq=False)
class Unit:
    """A node of the graph.

    Attributes:
        scopes: the maps of a group, as they stand in the SDFG; () for another node.
        group: None where the node is no map that fusion can read.
        array: of an access node.
        place: in a topological order of all units.
        before, after: units with an edge to or from this one.
    """

    scopes: tuple[nodes.MapEntry, ...] = ()
    group: Group | None = None
    array: str | None = None
    place: int = 0
    before: set[Unit] = field(default_factory=set["Unit"])
    after: set[Unit] = field(default_factory=set["Unit"])

    def array_behind(self, array: str) -> Unit | None:
        """The unit of an array that this one writes."""
        return next((unit for unit in self.after if unit.array == array), None)


class UnitGraph:
    """All units of a state.

    Args:
        group: of a top-level map; None where fusion cannot read it.
        draws: nodes that draw random numbers, in the order in which they have to.

    Attributes:
        units: in the order of the program.
    """

    def __init__(
        self,
        state: dace.SDFGState,
        group: Callable[[nodes.MapEntry], Group | None],
        draws: Sequence[nodes.Node] = (),
    ) -> None:
        scopes = state.scope_dict()
        of: dict[nodes.Node, Unit] = {}
        self.units: dict[Unit, None] = {}
        for place, node in enumerate(program_order(state, draws)):
            if isinstance(node, nodes.MapExit):
                entry = scopes[node]
                if entry in of:
                    of[node] = of[entry]
            elif scopes[node] is None:
                unit = of[node] = Unit(place=place)
                if isinstance(node, nodes.MapEntry):
                    unit.scopes, unit.group = (node,), group(node)
                elif isinstance(node, nodes.AccessNode):
                    unit.array = node.data
                self.units[unit] = None
        self._at: list[Unit | None] = [None] * state.number_of_nodes()
        for unit in self.units:
            self._at[unit.place] = unit
        pairs = [(edge.src, edge.dst) for edge in state.edges()]
        for first, second in (*pairs, *itertools.pairwise(draws)):
            if first in of and second in of and of[first] is not of[second]:
                of[first].after.add(of[second])
                of[second].before.add(of[first])

    def merge(self, one: Unit, other: Unit, group: Group) -> None:
        """Put `other` into `one`; nothing may stand between them."""
        one.scopes, one.group = (*one.scopes, *other.scopes), group
        for unit in other.before:
            unit.after.discard(other)
            unit.after.add(one)
        for unit in other.after:
            unit.before.discard(other)
            unit.before.add(one)
        one.before |= other.before
        one.after |= other.after
        # an array between the two is behind them now: the nest reads what it keeps for itself
        between = one.before & one.after
        for unit in between:
            unit.after.discard(one)
        one.before -= between
        del self.units[other]
        self._at[other.place] = None
        other.group = None
        self._place(min(one.place, other.place), max(one.place, other.place))

    def _place(self, low: int, high: int) -> None:
        """Put the units from one place to another in order again: what lay between two that have become one
        comes before or behind them."""
        window = [unit for unit in self._at[low : high + 1] if unit is not None]
        inside = set(window)
        missing = {unit: len(unit.before & inside) for unit in window}
        ready = [(unit.place, unit) for unit in window if not missing[unit]]
        ordered: list[Unit] = []
        while ready:
            _, unit = heapq.heappop(ready)
            ordered.append(unit)
            for after in unit.after & inside:
                missing[after] -= 1
                if not missing[after]:
                    heapq.heappush(ready, (after.place, after))
        assert len(ordered) == len(window), "units that were merged are in a circle"
        self._at[low : high + 1] = [*ordered, *[None] * (high + 1 - low - len(ordered))]
        for place, unit in enumerate(ordered, low):
            unit.place = place


def stands_between(first: Unit, second: Unit) -> bool:
    """Whether a path leads from one to the other through a step that is neither."""
    waiting = [u for array in first.after for u in array.after if u is not second and u is not first]
    waiting += [u for u in first.after if u.array is None and u is not second]
    seen: set[Unit] = set()
    while waiting:
        unit = waiting.pop()
        if unit is second:
            return True
        if unit in seen or unit.place > second.place:
            continue
        seen.add(unit)
        waiting += unit.after
    return False
