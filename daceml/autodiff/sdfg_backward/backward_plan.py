"""What a backward pass needs to know before it is written: which steps matter, and what must be stored."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import dace
from dace.sdfg import nodes
from dace.sdfg.state import ConditionalBlock, ControlFlowBlock, ControlFlowRegion, LoopRegion
from dace.sdfg.type_inference import infer_expr_type

from daceml.autodiff.adjoint import Flow, Forward, adjoint
from daceml.autodiff.sdfg_backward.normal_form import scope_to_loop
from daceml.autodiff.sdfg_backward.pointwise import pointwise_flows
from daceml.autodiff.sdfg_backward.statements import arrays_read, step_statements
from daceml.autodiff.sdfg_backward.steps import LoopBounds, Step, bodies, chain, program_steps, walk
from daceml.autodiff.sdfg_backward.stored_values import (
    Record,
    Records,
    assigned_symbols,
    insert_before,
    note_branches,
    split_before,
)
from daceml.errors import GradientError
from daceml.sdfg.lifting import NotLiftable, Statement
from daceml.sdfg.scalar import FLOATS, DType, Index, Scalar
from daceml.sdfg.scalar_rewrite import free_names


class Plan:
    """A program in the form that is reversed, and what is known of it.

    Attributes:
        steps: in order.
        active: arrays that lie between inputs and outputs.
        statements: of the steps that write active arrays.
        blocks, chains: the forward blocks of the program and of its regions, before records are added.
        branches: conditional -> where the branch taken is stored.
        symbols: block -> symbols that it uses and the program assigns -> where they are stored.
        leaves: inputs whose gradient stays with the array, whatever is assigned to it: no gradient flows into
            what was assigned.
    """

    def __init__(
        self, sdfg: dace.SDFG, outputs: Sequence[str], inputs: Sequence[str], *, leaves: bool = False
    ) -> None:
        self.sdfg, self.inputs = sdfg, set(inputs)
        self.leaves = frozenset(inputs) if leaves else frozenset[str]()
        self.branches: dict[ControlFlowBlock, Record] = {}
        self.symbols: dict[ControlFlowBlock, dict[str, Record]] = {}
        self.statements: dict[Step, tuple[Statement, ...]] = {}
        while True:
            _declare_symbols(sdfg)
            self.steps = program_steps(sdfg)
            self.active = _active(sdfg, self.steps, outputs, inputs, self.leaves)
            if self._lifted():
                break
        self.blocks: list[ControlFlowBlock] = []
        self.chains: dict[ControlFlowRegion, list[ControlFlowBlock]] = {}
        self.loops = dict(walk(sdfg))

    def store(self, records: Records) -> None:
        """Add to the forward program what stores values for the backward one."""
        needs = {step: self._needs(step) for step in self.steps}
        for step in self.steps:
            for array in sorted(step.writes):
                readers = [s for s in self.steps if array in needs[s]]
                if any(step.may_follow(s) for s in readers):
                    step.saved[array] = records.of_value(step, array)
        assigned = assigned_symbols(self.sdfg)
        for step in self.steps:
            if step.saved:
                split_before(self.sdfg, self.steps, step)
        self.blocks = chain(self.sdfg)
        for block, loops in list(walk(self.sdfg)):
            self.loops[block] = loops
            for region in bodies(block):
                self.chains[region] = chain(region)
        self._store_symbols(records, assigned)
        for block in list(self.loops):
            if isinstance(block, ConditionalBlock) and any(
                s.saved or self.statements.get(s) for s in self.inside(block)
            ):
                self.branches[block] = note_branches(records, block, self.loops[block])
        written: set[str] = set()
        for step in self.steps:
            for array, record in step.saved.items():
                insert_before(self.sdfg, step.state, lambda w, r=record: records.store(w, r))
                if array not in written and self.sdfg.arrays[array].transient:
                    # In a loop it is stored once before it has a value.
                    first = self.sdfg.start_block
                    insert_before(self.sdfg, first, lambda w, a=array: records.begin(w, a))
            written |= step.writes

    def inside(self, block: ControlFlowBlock) -> list[Step]:
        """The steps of a block."""
        if isinstance(block, dace.SDFGState):
            return [s for s in self.steps if s.state is block]
        held = {b for region in bodies(block) for b in region.all_control_flow_blocks()}
        return [s for s in self.steps if s.state in held]

    def flows_to(self, statement: Statement) -> set[str]:
        """Arrays whose elements a statement may be differentiated by."""
        found = arrays_read(statement.value)
        return {a for a in found if a in self.active and self.sdfg.arrays[a].dtype in FLOATS}

    def has_earlier_life(self, step: Step, array: str) -> bool:
        """Whether what a step overwrites in an array may have a gradient."""
        if array in self.inputs:
            return True
        return any(
            array in other.writes and other.order != step.order and step.may_follow(other)
            for other in self.steps
        ) or bool(step.loops)

    def refuse_moving_bounds(self, loop: LoopRegion, bounds: LoopBounds) -> None:
        """What a loop runs over must be the same when it runs backwards.

        Raises:
            GradientError: a bound is data that the program writes, or a symbol that it assigns again.
        """
        assigned = [name for edge in self.sdfg.all_interstate_edges() for name in edge.data.assignments]
        around = {b.loop_variable for b in self.loops[loop]}
        moving = {n for n in assigned if assigned.count(n) > 1 or self.loops[loop]} - around
        moving |= {a for step in self.steps for a in step.writes}
        if found := sorted((free_names(bounds.start) | free_names(bounds.last)) & moving):
            raise GradientError(
                f"loop {loop.label} cannot be run backwards",
                where=f"{bounds.variable} from {bounds.start} to {bounds.last}",
                why=f"the program changes {', '.join(found)}",
                fix="give the loop bounds that are sizes or variables of the loops around it",
            )

    def new_symbol(self, name: str) -> str:
        """A symbol that nobody has."""
        number = 0
        while f"_{name}_{number}" in self.sdfg.symbols:
            number += 1
        self.sdfg.add_symbol(f"_{name}_{number}", dace.int64)
        return f"_{name}_{number}"

    # ------------------------------------------------------------------ inside

    def _lifted(self) -> bool:
        """Find all statements; a scope that has none becomes a loop, and everything begins anew."""
        self.statements.clear()
        for step in self.steps:
            if (self.active - self.leaves).isdisjoint(step.writes):
                continue
            try:
                found = step_statements(self.sdfg, step)
            except NotLiftable as reason:
                if isinstance(step.head, nodes.MapEntry):
                    scope_to_loop(self.sdfg, step.state, step.head)
                    return False
                raise GradientError(
                    f"{step.label} cannot be differentiated",
                    where=f"state {step.state.label}",
                    why=str(reason),
                    fix="write it with maps, tasklets in Python and assignments",
                ) from reason
            self.statements[step] = found
        return True

    def _needs(self, step: Step) -> set[str]:
        """Arrays whose values the adjoint of a step reads."""
        found: set[str] = set()
        for statement in self.statements.get(step, ()):
            if statement.target not in self.active or statement.target in self.leaves:
                continue
            own = "the gradient of what is written"
            held: dict[str, Any] = dict(self.sdfg.arrays) | {own: self.sdfg.arrays[statement.target]}

            def hold(
                what: str,
                extents: Sequence[Index],
                dtype: DType,
                value: Scalar,
                held: Any = held,
            ) -> str:
                found.update(arrays_read(value))  # noqa: B023  (called before the next round)
                name = f"{what} {len(held)}"
                held[name] = dace.data.Array(dtype, tuple(extents))
                return name

            forward = Forward(arrays=held, wanted=frozenset(self.active), hold=hold, keeps_result=False)
            direct = pointwise_flows(statement, own, forward)
            if direct is not None:
                for _, term in direct:
                    found |= arrays_read(term)
                continue
            for flow in adjoint(statement, own, forward):
                found |= _flow_reads(flow)
        return found & self.sdfg.arrays.keys()

    def _refuse_numbers(self, names: set[str], block: ControlFlowBlock) -> None:
        """A gradient cannot flow through a symbol."""
        if floating := sorted(n for n in names if self.sdfg.symbols.get(n) in FLOATS):
            raise GradientError(
                f"the symbol {floating[0]} cannot be differentiated",
                where=f"state {block.label}",
                why="it is a floating-point number that the program assigns between states",
                fix="keep it in a scalar or an array",
            )

    def _store_symbols(self, records: Records, assigned: set[str]) -> None:
        for block, loops in list(self.loops.items()):
            if not isinstance(block, dace.SDFGState):
                continue
            names = {str(s) for s in block.free_symbols} & assigned
            if names and any(s.saved or self.statements.get(s) for s in self.inside(block)):
                self._refuse_numbers(names, block)
                held = {name: records.of_number(name, loops) for name in sorted(names)}
                self.symbols[block] = held

                def write(writer: Any, held: dict[str, Record] = held) -> None:
                    for name, record in held.items():
                        records.note(writer, record, dace.symbolic.symbol(name))

                insert_before(self.sdfg, block, write)


def _declare_symbols(sdfg: dace.SDFG) -> None:
    """Let variables of loops, and what edges assign, be symbols that tasklets may name."""
    loops = [b for b in sdfg.all_control_flow_blocks() if isinstance(b, LoopRegion)]
    for name in sorted({b.loop_variable for b in loops if b.loop_variable}):
        if name not in sdfg.symbols:
            sdfg.add_symbol(name, dace.int64)
    known: dict[str, Any] = {a: d.dtype for a, d in sdfg.arrays.items()}
    for edge in sdfg.all_interstate_edges():
        for name, value in edge.data.assignments.items():
            if name not in sdfg.symbols:
                found = infer_expr_type(value, known | sdfg.symbols)
                sdfg.add_symbol(name, dace.int64 if found is None else found)


def _flow_reads(flow: Flow) -> set[str]:
    if flow.value is not None:
        return arrays_read(flow.value)
    assert flow.scatter is not None
    scatter = flow.scatter(flow.array)
    found = arrays_read(scatter.updates.value)
    for place in scatter.updates.index:
        if isinstance(place, Scalar):
            found |= arrays_read(place)
    return found


def _active(
    sdfg: dace.SDFG,
    steps: Sequence[Step],
    outputs: Sequence[str],
    inputs: Sequence[str],
    leaves: frozenset[str],
) -> set[str]:
    """Arrays of floating-point numbers that depend on an input and that an output depends on."""

    def grown(start: Sequence[str], backwards: bool) -> set[str]:
        found = {a for a in start if sdfg.arrays[a].dtype in FLOATS}
        while True:
            before = len(found)
            for step in steps:
                written = step.writes - leaves
                sources, targets = (written, step.reads) if backwards else (step.reads, written)
                if not found.isdisjoint(sources):
                    found |= {a for a in targets if sdfg.arrays[a].dtype in FLOATS}
            if len(found) == before:
                return found

    return grown(inputs, False) & grown(outputs, True)
