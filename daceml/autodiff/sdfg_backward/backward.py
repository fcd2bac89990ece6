"""The program run backwards: the adjoint of every step, in reverse order.

The gradient of an array belongs to its present version. The adjoint of an assignment takes the gradient of
what was assigned, gives parts of it to what was read, and leaves zero where the assignment has overwritten
something. Before it, what the step has overwritten is put back, so that every adjoint reads what its step
has read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import dace
import sympy
from dace.sdfg.state import ConditionalBlock, ControlFlowBlock, ControlFlowRegion, LoopRegion

from daceml.autodiff.adjoint import Flow, Forward, adjoint
from daceml.autodiff.sdfg_backward.backward_plan import Plan
from daceml.autodiff.sdfg_backward.pointwise import covers, pointwise_flows
from daceml.autodiff.sdfg_backward.steps import Step, chain, loop_bounds
from daceml.autodiff.sdfg_backward.stored_values import Records
from daceml.autodiff.sdfg_backward.writer import Writer
from daceml.sdfg.builder import Computation, parameters
from daceml.sdfg.lifting import Statement
from daceml.sdfg.scalar import DType, Index, Scalar, cast, compute_type, literal, read
from daceml.sdfg.scalar_rewrite import as_index, nodes_of
from daceml.sdfg.tasklet_code import find_reductions


class Backward:
    """Writes the backward pass behind a program.

    Args:
        gradients: array -> array that holds its gradient.
        given: arrays whose gradient holds something from the start.
        goes_on: whether the program reads its transients after the backward pass.
    """

    def __init__(
        self,
        sdfg: dace.SDFG,
        plan: Plan,
        records: Records,
        gradients: dict[str, str],
        given: set[str],
        *,
        goes_on: bool = False,
    ) -> None:
        self.sdfg, self.plan, self.records, self.goes_on = sdfg, plan, records, goes_on
        self.gradients, self.started = gradients, set(given)
        self.replays: dict[str, str] = {}

    def write(self, writer: Writer) -> None:
        """The whole backward pass."""
        for array in sorted({a for s in self.plan.steps for a in s.saved}):
            if self.goes_on or not self.sdfg.arrays[array].transient:
                self.replays[array] = self._copy(writer, array)
        self._region(self.sdfg, writer, self.plan.blocks)

    def zero(self, writer: Writer, array: str) -> None:
        """Fill the gradient of an array with zeros unless it has begun."""
        if array not in self.started:
            shape = self._shape(array)
            self._compute(writer, self.gradients[array], shape, self._nothing(array))
            self.started.add(array)

    # ------------------------------------------------------------------ control flow

    def _region(self, region: ControlFlowRegion, writer: Writer, blocks: Sequence[ControlFlowBlock]) -> None:
        for block in reversed(blocks):
            if not self._matters(block):
                continue
            writer.assign({n: self.records.recall(r) for n, r in self.plan.symbols.get(block, {}).items()})
            match block:
                case dace.SDFGState():
                    for step in reversed([s for s in self.plan.steps if s.state is block]):
                        self._step(writer, step)
                case LoopRegion():
                    self._loop(block, writer)
                case ConditionalBlock():
                    self._conditional(block, writer)
                case _:
                    self._region(block, writer, chain(block))  # pyright: ignore[reportArgumentType]

    def _matters(self, block: ControlFlowBlock) -> bool:
        return any(s.saved or self.plan.statements.get(s) for s in self.plan.inside(block))

    def _prepare(self, writer: Writer, block: ControlFlowBlock) -> None:
        """Gradients that grow or shrink inside start before."""
        for step in self.plan.inside(block):
            for statement in self.plan.statements.get(step, ()):
                arrays = {statement.target, *self.plan.flows_to(statement)}
                for array in sorted(arrays & self.plan.active):
                    self.zero(writer, array)

    def _loop(self, loop: LoopRegion, writer: Writer) -> None:
        self._prepare(writer, loop)
        b = loop_bounds(loop)
        self.plan.refuse_moving_bounds(loop, b)
        sign, comparison = ("-", ">=") if b.step > 0 else ("+", "<=")
        text = dace.symbolic.symstr
        again = LoopRegion(
            label=f"backward_{loop.label}",
            condition_expr=f"{b.variable} {comparison} ({text(b.start)})",
            loop_var=b.variable,
            initialize_expr=f"{b.variable} = {text(b.last)}",
            update_expr=f"{b.variable} = ({b.variable} {sign} {abs(b.step)})",
            sdfg=self.sdfg,
        )
        writer.append(again)
        inner = Writer(self.sdfg, again)
        self._region(loop, inner, self.plan.chains[loop])
        self._close(inner)

    def _conditional(self, block: ConditionalBlock, writer: Writer) -> None:
        self._prepare(writer, block)
        record = self.plan.branches[block]
        taken = self.plan.new_symbol("taken")
        writer.assign({taken: self.records.recall(record)})
        again = ConditionalBlock(f"backward_{block.label}", sdfg=self.sdfg)
        writer.append(again)
        for number, (_, branch) in enumerate(block.branches):
            if not self._matters(branch):
                continue
            region = ControlFlowRegion(f"backward_{branch.label}", sdfg=self.sdfg)
            again.add_branch(dace.properties.CodeBlock(f"{taken} == {number}"), region)
            inner = Writer(self.sdfg, region)
            self._region(branch, inner, self.plan.chains[branch])
            self._close(inner)

    def _close(self, writer: Writer) -> None:
        if writer.last is None or writer.pending:
            writer.state("end")

    # ------------------------------------------------------------------ steps

    def _step(self, writer: Writer, step: Step) -> None:
        for array, record in step.saved.items():
            self.records.restore(writer, record, self.replays.get(array, array))
        for statement in reversed(self.plan.statements.get(step, ())):
            self._statement(writer, step, statement)

    def _statement(self, writer: Writer, step: Step, statement: Statement) -> None:
        target = statement.target
        if target not in self.plan.active or target not in self.started or target in self.plan.leaves:
            return
        flows_to = self.plan.flows_to(statement)
        cotangent = self.gradients[target]
        clears = statement.resolves is None and self.plan.has_earlier_life(step, target)
        if target in flows_to:
            cotangent = self._copy(writer, cotangent)
            if clears:
                self._clear(writer, statement)
                clears = False
        value = self._replayed(statement.value)
        back = {r: a for a, r in self.replays.items()}
        wanted = frozenset(self.plan.active | {self.replays.get(a, a) for a in self.plan.active})
        forward = Forward(
            arrays=self.sdfg.arrays, wanted=wanted, keeps_result=False,
            hold=lambda what, shape, dtype, held: self._hold(writer, what, shape, dtype, held),
        )  # fmt: skip
        moved = replace(statement, value=value)
        direct = pointwise_flows(moved, cotangent, forward)
        if direct is None:
            for flow in adjoint(moved, cotangent, forward):
                self._take(writer, replace(flow, array=back.get(flow.array, flow.array)))
        else:
            for leaf, term in direct:
                name: str = leaf.data[0]
                self._add(writer, back.get(name, name), statement, leaf.data[1], term)
        if clears:
            self._clear(writer, statement)

    def _clear(self, writer: Writer, statement: Statement) -> None:
        """What was assigned has taken its gradient along."""
        self._point(writer, statement, self.gradients[statement.target], statement.index,
                    self._nothing(statement.target))  # fmt: skip

    def _add(
        self, writer: Writer, array: str, statement: Statement, index: Sequence[Index], term: Scalar
    ) -> None:
        """A part that every point of the statement's box gives to an element of its own."""
        target, shape = self.gradients[array], self._shape(array)
        if array not in self.started and covers(statement, index, shape):
            self.started.add(array)
        else:
            self.zero(writer, array)
            before = read(target, self.sdfg.arrays[target].dtype, index, shape)
            term = before + cast(term, before.dtype)
        self._point(writer, statement, target, index, term)

    def _take(self, writer: Writer, flow: Flow) -> None:
        target, shape = self.gradients[flow.array], self._shape(flow.array)
        dtype, places = self.sdfg.arrays[flow.array].dtype, parameters(len(shape))
        value = flow.value
        if flow.scatter is not None:
            part = self._new(f"{target}_part", shape, dtype)
            writer.scatter(flow.scatter(part))
            value = read(part, dtype, places, shape)
        assert value is not None, "a flow is a value or a scatter"
        if flow.array in self.started:
            value = read(target, dtype, places, shape) + cast(value, compute_type(dtype))
        self.started.add(flow.array)
        self._compute(writer, target, shape, value)

    # ------------------------------------------------------------------ arrays

    def _replayed(self, value: Scalar) -> Scalar:
        """The expression with arrays that are put back read from what stands for them."""
        known: dict[int, Scalar] = {}
        for node in nodes_of(value):
            args = tuple(known[id(a)] for a in node.args)
            data = node.data
            if node.op in ("read", "gather"):
                data = (self.replays.get(data[0], data[0]), *data[1:])
            known[id(node)] = Scalar(node.op, node.dtype, args, data)
        return known[id(value)]

    def _shape(self, array: str) -> tuple[Index, ...]:
        return tuple(map(as_index, self.sdfg.arrays[array].shape))

    def _nothing(self, array: str) -> Scalar:
        return literal(0.0, compute_type(self.sdfg.arrays[array].dtype))

    def _new(self, name: str, shape: Sequence[Index], dtype: DType) -> str:
        found, _ = self.sdfg.add_transient(name, tuple(shape), dtype, find_new_name=True)
        return found

    def _copy(self, writer: Writer, array: str) -> str:
        shape, dtype = self._shape(array), self.sdfg.arrays[array].dtype
        copy = self._new(f"{array}_copy", shape, dtype)
        self._compute(writer, copy, shape, read(array, dtype, parameters(len(shape)), shape))
        return copy

    def _hold(self, writer: Writer, what: str, shape: Sequence[Index], dtype: DType, value: Scalar) -> str:
        name = self._new(what, shape, dtype)
        self._compute(writer, name, tuple(shape), value)
        return name

    def _compute(self, writer: Writer, target: str, shape: tuple[Index, ...], value: Scalar) -> None:
        places: tuple[sympy.Basic, ...] = parameters(len(shape))
        writer.compute(
            Computation(label=target, target=target, index=places, params=places, extents=shape, value=value)
        )

    def _point(
        self, writer: Writer, statement: Statement, target: str, index: Sequence[Any], value: Scalar
    ) -> None:
        assert not find_reductions(value), "a point adds what it has"
        writer.compute(
            Computation(
                label=target, target=target, index=tuple(index), params=statement.params,
                extents=statement.extents, value=value,
            )
        )  # fmt: skip
