"""The steps of any DaCe program: what each one reads and writes, in the order in which they run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import dace
import networkx
import sympy
from dace import symbolic
from dace.sdfg import nodes
from dace.sdfg.state import ConditionalBlock, ControlFlowBlock, ControlFlowRegion, LoopRegion
from dace.transformation.passes.analysis import loop_analysis

from daceml.errors import GradientError
from daceml.sdfg.scalar import Index
from daceml.sdfg.scalar_rewrite import as_index


@dataclass(kw_only=True, eq=False)
class Step:
    """A scope, a tasklet, a library node or a copy: what is reversed as a whole.

    Attributes:
        state: where it stands; changes when states are split.
        body: its nodes; none for a copy.
        edges: between the body and access nodes, or the copy itself.
        loops: sequential loops around it, outermost first.
        order: its number in the program.
    """

    state: dace.SDFGState
    head: nodes.Node | None
    body: tuple[nodes.Node, ...]
    edges: tuple[Any, ...]
    loops: tuple[LoopRegion, ...]
    order: int
    saved: dict[str, Any] = field(default_factory=dict[str, Any])

    @property
    def label(self) -> str:
        """Its name, for people."""
        edge = self.edges[0] if self.edges else None
        return str(self.head) if self.head is not None else f"copy {edge.src} -> {edge.dst}"  # pyright: ignore

    @property
    def reads(self) -> set[str]:
        """Arrays read; a sum into an array leaves what it adds to, and does not count."""
        return {e.src.data for e in self._full() if isinstance(e.src, nodes.AccessNode)}

    @property
    def writes(self) -> set[str]:
        """Arrays written."""
        return {e.dst.data for e in self._full() if isinstance(e.dst, nodes.AccessNode)}

    def written(self, array: str) -> list[Any]:
        """Edges that write an array."""
        return [e for e in self._full() if isinstance(e.dst, nodes.AccessNode) and e.dst.data == array]

    def may_follow(self, other: Step) -> bool:
        """Whether some run of this step comes after, or is, one of the other."""
        return self.order >= other.order or not set(self.loops).isdisjoint(other.loops)

    def _full(self) -> list[Any]:
        return [e for e in self.edges if not e.data.is_empty()]


def chain(region: ControlFlowRegion) -> list[ControlFlowBlock]:
    """The blocks of a region in their order.

    Raises:
        GradientError: they do not follow each other in one line.
    """
    blocks = list(region.nodes())
    conditions = [e for e in region.edges() if not e.data.is_unconditional()]
    branches = [b for b in blocks if region.out_degree(b) > 1 or region.in_degree(b) > 1]
    known = (dace.SDFGState, LoopRegion, ConditionalBlock)
    strange = [b for b in blocks if not isinstance(b, known) and type(b) is not ControlFlowRegion]
    if conditions or branches or strange or len(region.edges()) != max(len(blocks) - 1, 0):
        culprit = (strange or branches or blocks)[0]
        raise GradientError(
            "a program with jumps cannot be differentiated",
            where=f"{type(culprit).__name__} {culprit.label} in {region.label}",
            why="only states, loops and conditionals that follow each other can be run backwards",
            fix="write the control flow with for and if; break, continue and return in a loop cannot be used",
        )
    ordered = list(networkx.topological_sort(networkx.DiGraph([(e.src, e.dst) for e in region.edges()])))
    return ordered or blocks


def bodies(block: ControlFlowBlock) -> list[ControlFlowRegion]:
    """Regions that a block of control flow is made of."""
    if isinstance(block, ConditionalBlock):
        return [region for _, region in block.branches]
    return [block] if isinstance(block, ControlFlowRegion) else []


def walk(
    region: ControlFlowRegion, loops: tuple[LoopRegion, ...] = ()
) -> Iterator[tuple[ControlFlowBlock, tuple[LoopRegion, ...]]]:
    """Every block with the loops around it, those of control flow before what they hold."""
    for block in chain(region):
        yield block, loops
        inside = (*loops, block) if isinstance(block, LoopRegion) else loops
        for body in bodies(block):
            yield from walk(body, inside)


def program_steps(sdfg: dace.SDFG) -> list[Step]:
    """All steps, in order."""
    found: list[Step] = []
    for block, loops in walk(sdfg):
        if isinstance(block, dace.SDFGState):
            found += _steps(block, loops, len(found))
    return found


def _steps(state: dace.SDFGState, loops: tuple[LoopRegion, ...], first: int) -> list[Step]:
    scopes = state.scope_dict()
    found: list[Step] = []

    def add(head: nodes.Node | None, body: Sequence[nodes.Node], edges: Sequence[Any]) -> None:
        found.append(
            Step(
                state=state, head=head, body=tuple(body), edges=tuple(edges), loops=loops,
                order=first + len(found),
            )
        )  # fmt: skip

    for node in networkx.topological_sort(networkx.DiGraph(state.nx)):
        if scopes[node] is not None or isinstance(node, nodes.ExitNode):
            continue
        if isinstance(node, nodes.AccessNode):
            for edge in state.out_edges(node):
                if isinstance(edge.dst, nodes.AccessNode) and not edge.data.is_empty():
                    add(None, (), (edge,))
        elif isinstance(node, nodes.EntryNode):
            inside = state.scope_subgraph(node, include_entry=True, include_exit=True).nodes()
            add(node, inside, [*state.in_edges(node), *state.out_edges(state.exit_node(node))])
        else:
            add(node, (node,), [*state.in_edges(node), *state.out_edges(node)])
    return found


@dataclass(frozen=True, kw_only=True)
class LoopBounds:
    """`for variable in start, start + step, …`: `trips` times."""

    variable: str
    start: Index
    last: Index
    step: int
    trips: Index


def loop_bounds(loop: LoopRegion) -> LoopBounds:
    """What a loop runs over.

    Raises:
        GradientError: a while loop, or a step that is not a whole number.
    """
    start: Any = loop_analysis.get_init_assignment(loop)
    end: Any = loop_analysis.get_loop_end(loop)
    step: Any = loop_analysis.get_loop_stride(loop)
    if start is None or end is None or step is None or not sympy.sympify(step).is_Integer or int(step) == 0:
        raise GradientError(
            "a loop whose number of steps is not known before it runs cannot be differentiated",
            where=f"loop {loop.label}: while {loop.loop_condition.as_string}",
            why="what its steps overwrite is stored for each of them",
            fix="write it as a for loop over a range with a whole step",
        )
    start, end, step = as_index(start), as_index(end), int(step)
    reach = as_index(symbolic.simplify(sympy.sympify(end - start)))
    size = abs(step)
    trips = reach if step > 0 else -reach
    trips = as_index(trips + 1) if size == 1 else as_index(symbolic.int_floor(trips + size, size))
    last = as_index(start + (trips - 1) * step)
    return LoopBounds(variable=loop.loop_variable, start=start, last=last, step=step, trips=trips)
