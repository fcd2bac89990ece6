"""What a backward pass finds no more when it needs it, stored while the program runs forward.

A value that a step overwrites, and that some adjoint reads, is stored before; so is the branch that a
conditional takes, and the value of a symbol that the program assigns. In loops everything is stored once for
each iteration: the record has one dimension for each loop around it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import dace
import sympy
from dace import symbolic
from dace.sdfg import nodes
from dace.sdfg.state import ConditionalBlock, ControlFlowBlock, ControlFlowRegion, LoopRegion

from daceml.autodiff.sdfg_backward.statements import sizes
from daceml.autodiff.sdfg_backward.steps import Step, loop_bounds
from daceml.autodiff.sdfg_backward.writer import Writer
from daceml.errors import GradientError
from daceml.sdfg.builder import Computation, parameters
from daceml.sdfg.scalar import Index, index_value, literal, read
from daceml.sdfg.scalar_rewrite import as_index, free_names


@dataclass(frozen=True, kw_only=True)
class Record:
    """An array, and where in it the value of this iteration stands.

    Attributes:
        at: position in the dimensions of the loops.
        array: what is stored; empty for a branch or a symbol.
        corner, extents: the part of it.
    """

    name: str
    at: tuple[Index, ...]
    array: str = ""
    corner: tuple[Index, ...] = ()
    extents: tuple[Index, ...] = ()


class Records:
    """Makes records, and code that fills and reads them."""

    def __init__(self, sdfg: dace.SDFG, changing: set[str]) -> None:
        self.sdfg, self.changing = sdfg, changing

    def of_value(self, step: Step, array: str) -> Record:
        """What a step overwrites in an array, or all of the array where that part changes its size."""
        desc = self.sdfg.arrays[array]
        shape = tuple(map(as_index, desc.shape))
        corner, extents = (0,) * len(shape), shape
        written = step.written(array)
        if len(written) == 1:
            subset: Any = written[0].data.get_dst_subset(written[0], step.state)
            moving = None if subset is None else set().union(*map(free_names, sizes(subset)))
            ranges: Any = () if subset is None else subset.ranges
            fixed = subset is not None and all(str(s) == "1" for _, _, s in ranges)
            names = set() if subset is None else {str(s) for s in subset.free_symbols}
            if fixed and moving is not None and not moving & self.changing and not names & self._assigned():
                corner = tuple(as_index(low) for low, _, _ in ranges)
                extents = sizes(subset)
        self._fixed(array, shape, step.label)
        trips, at = self._place(step.loops, step.label)
        name, _ = self.sdfg.add_transient(
            f"stored_{array}", (*trips, *extents), desc.dtype, find_new_name=True
        )
        return Record(name=name, at=at, array=array, corner=corner, extents=extents)

    def of_number(self, name: str, loops: Sequence[LoopRegion]) -> Record:
        """A branch or a symbol."""
        trips, at = self._place(loops, name)
        name, _ = self.sdfg.add_transient(f"stored_{name}", trips or (1,), dace.int64, find_new_name=True)
        return Record(name=name, at=at or (0,))

    def store(self, writer: Writer, record: Record) -> None:
        """Fill a record with the value that is there now."""
        points = parameters(len(record.extents))
        desc = self.sdfg.arrays[record.array]
        source = tuple(as_index(c + p) for c, p in zip(record.corner, points, strict=True))
        writer.compute(
            Computation(
                label=f"store_{record.array}", target=record.name, index=(*record.at, *points), params=points,
                extents=record.extents, value=read(record.array, desc.dtype, source, desc.shape),
            )
        )  # fmt: skip

    def begin(self, writer: Writer, array: str) -> None:
        """Give an array a value before anything else does."""
        desc = self.sdfg.arrays[array]
        shape = tuple(map(as_index, desc.shape))
        points = parameters(len(shape))
        writer.compute(
            Computation(
                label=f"begin_{array}", target=array, index=points, params=points, extents=shape,
                value=literal(0, desc.dtype),
            )
        )  # fmt: skip

    def restore(self, writer: Writer, record: Record, target: str) -> None:
        """Put the value back, into the array or what stands for it."""
        points = parameters(len(record.extents))
        desc = self.sdfg.arrays[record.name]
        index = tuple(as_index(c + p) for c, p in zip(record.corner, points, strict=True))
        value = read(record.name, desc.dtype, (*record.at, *points), desc.shape)
        writer.compute(
            Computation(
                label=f"restore_{record.array}", target=target, index=index, params=points,
                extents=record.extents, value=value,
            )
        )  # fmt: skip

    def note(self, writer: Writer, record: Record, value: Index) -> None:
        """Store a number or the value of a symbol."""
        number = literal(value, dace.int64) if isinstance(value, int) else index_value(value)
        writer.compute(
            Computation(
                label=f"note_{record.name}", target=record.name, index=record.at, params=(), extents=(),
                value=number,
            )
        )  # fmt: skip

    def recall(self, record: Record) -> str:
        """The number of a record, for an edge between states."""
        return f"{record.name}[{', '.join(symbolic.symstr(i) for i in record.at)}]"

    def _assigned(self) -> set[str]:
        return assigned_symbols(self.sdfg)

    def _fixed(self, array: str, shape: Sequence[Index], where: str) -> None:
        moving = set().union(*map(free_names, shape)) & self.changing
        if moving:
            raise GradientError(
                f"the array {array} cannot be stored",
                where=where,
                why=f"its size changes with {', '.join(sorted(moving))}",
                fix="simplify the program first, or give the array a fixed size",
            )

    def _place(self, loops: Sequence[LoopRegion], where: str) -> tuple[tuple[Index, ...], tuple[Index, ...]]:
        trips: list[Index] = []
        at: list[Index] = []
        around = [loop_bounds(loop) for loop in loops]
        for number, loop in enumerate(around):
            most: Any = sympy.sympify(loop.trips)
            for outer in reversed(around[:number]):
                most = _largest(most, outer.variable, outer.start, outer.last)
            left = free_names(as_index(most)) & self.changing if not isinstance(most, int) else set()
            if left:
                raise GradientError(
                    f"how often loop {loop.variable} runs is not known before",
                    where=where,
                    why=f"its bounds depend on {', '.join(sorted(left))}",
                    fix="give the loop bounds that are sizes or variables of the loops around it",
                )
            place = symbolic.symbol(loop.variable) - loop.start
            at.append(as_index(place * loop.step if abs(loop.step) == 1 else _divided(place, loop.step)))
            # A loop that may not run at all has room for one step: no size is negative.
            trips.append(as_index(most if sympy.sympify(most).is_nonnegative else sympy.Max(most, 1)))
        return tuple(trips), tuple(at)


def _divided(place: Any, step: int) -> Any:
    return symbolic.int_floor(place if step > 0 else -place, abs(step))


def _largest(expression: Any, name: str, start: Index, last: Index) -> Any:
    """The largest value of an expression while a variable runs between two values."""
    variable = next((s for s in expression.free_symbols if str(s) == name), None)
    if variable is None:
        return expression
    slope = sympy.expand(expression).coeff(variable)
    linear = sympy.simplify(sympy.expand(expression) - slope * variable)
    if not slope.is_number or linear.has(variable):
        return sympy.Max(expression.subs(variable, start), expression.subs(variable, last))
    upward = bool(slope > 0) == bool(sympy.sympify(last - start).is_negative is not True)
    return sympy.expand(expression).subs(variable, last if upward else start)


def assigned_symbols(sdfg: dace.SDFG) -> set[str]:
    """Symbols that edges between states assign."""
    return {name for edge in sdfg.all_interstate_edges() for name in edge.data.assignments}


def note_branches(records: Records, block: ConditionalBlock, loops: Sequence[LoopRegion]) -> Record:
    """Store which branch is taken: its number, or -1."""
    record = records.of_number("branch", loops)
    insert_before(records.sdfg, block, lambda w: records.note(w, record, -1))
    for number, (_, branch) in enumerate(block.branches):
        insert_before(records.sdfg, branch.start_block, lambda w, n=number: records.note(w, record, n))
    return record


def insert_before(sdfg: dace.SDFG, block: ControlFlowBlock, write: Any) -> None:
    """Blocks that a function writes come directly before a block, after what leads to it."""
    region: ControlFlowRegion = block.parent_graph  # pyright: ignore[reportAssignmentType]
    before = list(region.in_edges(block))
    starts = region.start_block is block
    first = region.add_state(f"before_{block.label}", is_start_block=starts)
    for edge in before:
        region.remove_edge(edge)
        region.add_edge(edge.src, first, edge.data)
    writer = Writer(sdfg, region, first)
    write(writer)
    assert writer.last is not None
    region.add_edge(writer.last, block, dace.InterstateEdge())


def split_before(sdfg: dace.SDFG, steps: Sequence[Step], first: Step) -> None:
    """Let a step begin a state of its own; the steps of its state from it on move with it."""
    old = first.state
    later = [s for s in steps if s.state is old and s.order >= first.order]
    if not any(s.state is old and s.order < first.order for s in steps):
        return
    region: Any = old.parent_graph
    new = region.add_state_after(old, f"{old.label}_rest")
    copies: dict[nodes.AccessNode, nodes.AccessNode] = {}

    def there(node: nodes.Node) -> nodes.Node:
        if not isinstance(node, nodes.AccessNode) or node in bodies:
            return node
        if node not in copies:
            copies[node] = nodes.AccessNode(node.data)
            new.add_node(copies[node])
        return copies[node]

    for step in later:
        bodies = set(step.body)
        inner = [e for n in step.body for e in old.out_edges(n) if e.dst in bodies]
        kept = [e for e in step.edges if e.src in bodies or e.dst in bodies or not bodies]
        new.add_nodes_from(step.body)
        moved = [
            (new.add_edge(there(e.src), e.src_conn, there(e.dst), e.dst_conn, e.data), e in step.edges)
            for e in (*inner, *(e for e in kept if _between_arrays(e, bodies)))
        ]
        old.remove_nodes_from(step.body)
        for e in step.edges:
            if not bodies:
                old.remove_edge(e)
        step.edges = tuple(e for e, outer in moved if outer)
        step.state = new
    for node in [n for n in old.data_nodes() if old.degree(n) == 0]:
        old.remove_node(node)


def _between_arrays(edge: Any, bodies: set[nodes.Node]) -> bool:
    return all(n in bodies or isinstance(n, nodes.AccessNode) for n in (edge.src, edge.dst))
