"""Reverse-mode differentiation of a network: its steps in reverse order, by rules or from their lowered form.

A node with a `@vjp` rule stays whole and gets a backward node. Every other node is lowered to its native
form, whose scopes are read back as statements and differentiated symbolically. The parts of an array's
gradient are collected until all its readers have been seen; then a single part is the gradient, and several
are one sum.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import dace
from dace.sdfg import nodes
from dace.subsets import Range

from daceml.autodiff.activity import (
    COMPLEX,
    active_arrays,
    drawn_at_random,
    reads,
    steps,
    stops,
    viewed,
    writes,
)
from daceml.autodiff.adjoint import Flow, Forward, adjoint
from daceml.autodiff.custom_gradients import (
    RESULT,
    awaits_cotangent,
    given_gradients,
    is_custom,
    redirect,
    use_cotangent,
)
from daceml.autodiff.rule_choice import advice_without_rule, applicable_rules
from daceml.autodiff.torch_fallback import gradient_node, is_torchs, plain_node, refuse_without_derivative
from daceml.autodiff.vjp import Rule
from daceml.errors import GradientError, NoImplementationError
from daceml.onnx_ops.binding import bind
from daceml.onnx_ops.lowering import apply, choose
from daceml.onnx_ops.schema.node import ONNXNode
from daceml.onnx_ops.schema.operands import operands
from daceml.onnx_ops.schema.random_operators import draws
from daceml.onnx_ops.tracing.tensor import Tensor, element_reader
from daceml.onnx_ops.tracing.trace import Trace
from daceml.sdfg.builder import Builder, Computation, parameters
from daceml.sdfg.lifting import NotLiftable, arrays_outside, lift
from daceml.sdfg.network import Network
from daceml.sdfg.origin import NodeOrigin
from daceml.sdfg.scalar import DType, Index, Scalar, cast, compute_type, literal, read
from daceml.sdfg.scatter import emit_scatter
from daceml.sdfg.tasklet_code import find_reductions
from daceml.sdfg.views import make_view, view_problem


@dataclass(frozen=True, kw_only=True)
class Gradients:
    """What differentiation added to a network.

    Attributes:
        cotangents: output -> array that takes its cotangent.
        arrays: wanted array -> array with its gradient; None where no output depends on it.
        by_rule, lowered: operators that gradients flow through, by a rule or from their lowered form.
    """

    cotangents: dict[str, str]
    arrays: dict[str, str | None]
    by_rule: tuple[str, ...] = ()
    lowered: tuple[str, ...] = ()


def add_gradients(
    network: Network, outputs: Sequence[str], inputs: Sequence[str], *, prefer_native: bool = False
) -> Gradients:
    """Add the backward pass to a network of ONNX nodes. Mutates it.

    Args:
        network: one state; nodes that have no rule are lowered.
        outputs: arrays whose cotangents are given.
        inputs: arrays whose gradients are wanted.
        prefer_native: differentiate everything from its lowered form, rules or not; but keep rules that are
            no derivative, and those of operators without such a form.
    Raises:
        GradientError: a step on the way has no derivative; the message names it.
    """
    origins = _lower_without_rule(network, outputs, inputs, prefer_native)
    gradients = _Reverse(network, outputs, inputs, origins).run()
    _drop_marks(network, gradients)
    return gradients


def _drop_marks(network: Network, gradients: Gradients) -> None:
    """Remove what only said where gradients end or begin; the backward pass is there already."""
    state = network.state
    kept = {*network.outputs, *network.mutations}
    for node in [n for n in state.nodes() if stops(n) or is_custom(n)]:
        connector = RESULT if is_custom(node) else "data"
        for edge in [e for e in state.in_edges(node) if e.dst_conn != connector]:
            state.remove_edge(edge)
            node.remove_in_connector(edge.dst_conn)
        (given,), (made,) = state.in_edges(node), state.out_edges(node)
        result: nodes.AccessNode = made.dst
        readers = [e.dst for e in state.out_edges(result)]
        if result.data in kept or not all(isinstance(reader, ONNXNode) for reader in readers):
            continue
        redirect(state, result, given.src)
        state.remove_nodes_from([node, result])
        network.sdfg.remove_data(result.data, validate=False)
    _drop_unread(network, {*kept, *(g for g in gradients.arrays.values() if g is not None)})


def _drop_unread(network: Network, wanted: set[str]) -> None:
    """Remove operators whose results are not read, such as gradients that are not wanted.

    Draws of random numbers stay: later draws follow them.
    """
    state = network.state
    checked = {check.array for check in network.checks}
    for node in reversed([n for n in steps(state) if isinstance(n, ONNXNode) and not draws(n)]):
        results = [e.dst for e in state.out_edges(node)]
        if any(state.out_degree(r) or r.data in wanted or r.data in checked for r in results):
            continue
        state.remove_nodes_from([node, *results])
        for result in results:
            network.sdfg.remove_data(result.data, validate=False)


def _lower_without_rule(
    network: Network, outputs: Sequence[str], inputs: Sequence[str], prefer_native: bool
) -> dict[str, str]:
    """Lower the nodes that gradients flow through and that no rule covers; array -> who writes it."""
    active = active_arrays(network.sdfg, network.state, inputs, outputs)
    builder = Builder(network.sdfg, network.state)
    origins: dict[str, str] = {}
    for node in [n for n in steps(network.state) if isinstance(n, ONNXNode)]:
        through = active.intersection(reads(network.state, node))
        if stops(node) or is_custom(node) or drawn_at_random(node):
            continue
        if not through or active.isdisjoint(writes(network.state, node)):
            continue
        if is_torchs(node):
            refuse_without_derivative(node)
            continue
        title, where = node.schema.title, node.where()
        found = applicable_rules(node, network, active, prefer_native=prefer_native)
        if isinstance(found, dict) and found:
            continue
        try:
            chosen = choose(node, network, allowed=("alias", "native"))
        except NoImplementationError as error:
            if isinstance(applicable_rules(node, network, active), dict):
                continue  # no lowered form to prefer
            raise GradientError(
                f"{title} cannot be differentiated",
                where=where,
                why=f"{found or 'it has no @vjp rule'}\n{error.why}",
                fix=advice_without_rule(title),
            ) from error
        report = apply(chosen, node, network, builder)
        origins |= dict.fromkeys(report.writes, f"{title}, {where}")
    return origins


@dataclass(kw_only=True)
class _Parts:
    """The parts of one gradient: arrays that hold one, and expressions that have not been written yet.

    Attributes:
        origins: of the expressions, each once.
    """

    arrays: list[str] = field(default_factory=list[str])
    values: list[Scalar] = field(default_factory=list[Scalar])
    origins: dict[NodeOrigin, None] = field(default_factory=dict[NodeOrigin, None])


class _Reverse:
    def __init__(
        self, network: Network, outputs: Sequence[str], inputs: Sequence[str], origins: Mapping[str, str]
    ) -> None:
        self.network, self.sdfg, self.state = network, network.sdfg, network.state
        self.outputs, self.inputs, self.origins = outputs, inputs, origins
        self.active = active_arrays(self.sdfg, self.state, inputs, outputs)
        self.builder = Builder(self.sdfg, self.state)
        self.parts: dict[str, _Parts] = {array: _Parts() for array in (*self.active, *inputs)}
        self.gradients: dict[str, str | None] = {}
        self.by_rule: list[str] = []
        self.forward = Forward(arrays=self.sdfg.arrays, wanted=self.active, hold=self._hold)
        self.origin: tuple[NodeOrigin, ...] = ()  # of the gradients that are being made
        self.outside = arrays_outside(self.state)

    def run(self) -> Gradients:
        cotangents: dict[str, str] = {}
        for output in dict.fromkeys(self.outputs):
            cotangents[output] = self._new(f"{output}_cotangent", output, transient=False)
            if output in self.parts:
                self.parts[output].arrays.append(cotangents[output])
        for step in reversed(steps(self.state)):
            if stops(step) or awaits_cotangent(step) or drawn_at_random(step):
                continue
            if self.active.isdisjoint(reads(self.state, step)):
                continue
            if self.active.isdisjoint(writes(self.state, step)):
                continue
            match step:
                case nodes.MapEntry():
                    self._scope(step)
                case ONNXNode():
                    self._node(step)
                case nodes.AccessNode():
                    self._view(step)
                case _:
                    raise GradientError(
                        f"{type(step).__name__} cannot be differentiated",
                        where=str(step),
                        why="it is neither a map nor an operator",
                        fix="expand it first",
                    )
        found = {i: self._gradient(i) or (self._zeros(i) if i in self.active else None) for i in self.inputs}
        return Gradients(
            cotangents=cotangents, arrays=found, by_rule=tuple(self.by_rule),
            lowered=tuple(dict.fromkeys(self.origins.values())),
        )  # fmt: skip

    # ------------------------------------------------------------------ steps

    def _scope(self, entry: nodes.MapEntry) -> None:
        try:
            statements = lift(self.sdfg, self.state, entry, self.outside)
        except NotLiftable as reason:
            target = next(writes(self.state, entry))
            raise GradientError(
                f"{self.origins.get(target, entry.map.label)} cannot be differentiated",
                where=f"map {entry.map.label}, which writes {target}",
                why=str(reason),
                fix=advice_without_rule(self.origins.get(target, entry.map.label).partition(",")[0]),
            ) from reason
        for statement in reversed(statements):
            if statement.target not in self.active:
                continue
            cotangent = self._gradient(statement.target)
            if cotangent is not None:
                self.origin = tuple(
                    replace(o, operator=f"{o.operator}Grad", onnx_name=f"{o.onnx_name}/gradient")
                    for o in self.network.origins.get(statement.target, ())
                )
                for flow in adjoint(statement, cotangent, self.forward):
                    self._take(flow)

    def _node(self, node: ONNXNode) -> None:
        if is_custom(node):
            self._custom(node)
            return
        if is_torchs(node):
            self._torch_operator(node)
            return
        rules = applicable_rules(node, self.network, self.active)
        assert isinstance(rules, dict), f"{node} had a rule before"
        found = operands(node, self.state, self.sdfg)
        cotangents: dict[str, str | None] = {
            formal: None if array not in self.active else self._gradient(array)  # pyright: ignore
            for formal, array in found.outputs.items()
        }
        if all(c is None for c in cotangents.values()):
            return
        self.by_rule.append(f"{node.schema.title}, {node.where()}")
        unique: dict[int, Rule] = {id(rule): rule for rule in rules.values()}
        for rule in unique.values():
            self._backward_node(node, rule, [f for f, r in rules.items() if r is rule], cotangents)

    def _custom(self, node: ONNXNode) -> None:
        """The gradients that a function brings along, made of the cotangent that is known now."""
        (made,) = self.state.out_edges(node)
        cotangent = self._gradient(made.dst.data)
        if cotangent is None:
            return
        replaced = use_cotangent(node, cotangent, self.state, self.builder.node_of)
        for operand, gradient in given_gradients(node, self.sdfg, self.state):
            if operand in self.active:
                self.parts[operand].arrays.append(replaced.get(gradient, gradient))

    def _torch_operator(self, node: ONNXNode) -> None:
        """Gradients by torch's own derivative."""
        found = operands(node, self.state, self.sdfg)
        read, written = found.inputs["operands"], found.outputs["results"]
        assert isinstance(read, tuple)
        assert isinstance(written, tuple)
        known = [(n, self._gradient(a)) for n, a in enumerate(written) if a is not None and a in self.active]
        cotangents = [(n, c) for n, c in known if c is not None]
        if not cotangents:
            return
        self.by_rule.append(f"{node.schema.title}, {node.where()}")
        wanted = [(n, a) for n, a in enumerate(read) if a is not None and a in self.active]
        backward = gradient_node(node, [n for n, _ in cotangents], [n for n, _ in wanted])
        self.state.add_node(backward)
        for n, array in enumerate([*(a for a in read if a is not None), *(c for _, c in cotangents)]):
            source = self.builder.node_of(array)
            self.state.add_edge(source, None, backward, f"operands__{n}", self._whole(array))
        for n, (_, array) in enumerate(wanted):
            gradient = self._new(f"{array}_gradient", array)
            self.parts[array].arrays.append(gradient)
            target = self.builder.node_of(gradient)
            self.state.add_edge(backward, f"results__{n}", target, None, self._whole(gradient))

    def _backward_node(
        self, node: ONNXNode, rule: Rule, targets: Sequence[str], cotangents: Mapping[str, str | None]
    ) -> None:
        found = operands(node, self.state, self.sdfg)
        sources: dict[str, str] = {}
        for formal in rule.cotangents:
            if (array := cotangents.get(formal)) is not None:
                sources[f"d{formal}"] = array
        for formal in rule.keeps:
            held = found.inputs.get(formal) if formal in found.inputs else found.outputs.get(formal)
            if held is None and formal in rule.extra:
                held = self._extra_output(node, rule, formal)
            if isinstance(held, tuple):
                sources |= {f"{formal}__{n}": a for n, a in enumerate(held) if a is not None}
            elif held is not None:
                sources[formal] = held
        results: dict[str, str] = {}
        for target in targets:
            held = found.inputs[target]
            members = held if isinstance(held, tuple) else (held,)
            for n, array in enumerate(members):
                if array not in self.active:
                    continue
                connector = f"d{target}__{n}" if isinstance(held, tuple) else f"d{target}"
                results[connector] = self._new(f"{array}_gradient", str(array))
                self.parts[str(array)].arrays.append(results[connector])
        backward = rule.node(
            inputs=sources,
            outputs=results,
            onnx_name=f"{node.onnx_name}/gradient",
            module_path=node.module_path,
            source=node.source,
            **_attributes(node, rule),
        )
        self.state.add_node(backward)
        for connector, array in sources.items():
            self.state.add_edge(self.builder.node_of(array), None, backward, connector, self._whole(array))
        for connector, array in results.items():
            self.state.add_edge(backward, connector, self.builder.node_of(array), None, self._whole(array))

    def _extra_output(self, node: ONNXNode, rule: Rule, formal: str) -> str:
        """Ask the forward node for an optional output.

        It is named after the node's own result: the same whatever else is differentiated.
        """
        shape, dtype = bind(node, self.network).call_by_name(rule.extra[formal])
        own = operands(node, self.state, self.sdfg).written_arrays()[0]
        array, _ = self.sdfg.add_transient(
            f"{own}_{formal.lower()}", shape or (1,), dtype, find_new_name=True
        )
        node.add_out_connector(formal)
        self.state.add_edge(node, formal, self.builder.node_of(array), None, self._whole(array))
        return array

    def _view(self, node: nodes.AccessNode) -> None:
        source, cotangent = viewed(self.state, node), self._gradient(node.data)
        if cotangent is None or source not in self.active:
            return
        result = self._new(f"{source}_gradient", source)
        if view_problem(self.sdfg, cotangent, result) is None and self.sdfg.arrays[cotangent].transient:
            make_view(self.sdfg, self.state, self.builder.node_of(cotangent), self.builder.node_of(result))
            self.parts[source].arrays.append(result)
            return
        self.sdfg.remove_data(result, validate=False)
        desc = self.sdfg.arrays[cotangent]
        shape = self.forward.shape(source)
        given = Tensor(
            desc.shape, desc.dtype, element_reader(cotangent, desc.dtype, desc.shape), trace=Trace("view")
        )
        self.parts[source].values.append(given.reshape(shape).at(parameters(len(shape))))

    # ------------------------------------------------------------------ gradients

    def _take(self, flow: Flow) -> None:
        parts = self.parts[flow.array]
        if flow.value is not None:
            parts.values.append(flow.value)
            parts.origins |= dict.fromkeys(self.origin)
            return
        assert flow.scatter is not None
        target = self._new(f"{flow.array}_gradient", flow.array)
        emit_scatter(self.builder, flow.scatter(target))
        self.network.origins[target] = self.origin
        parts.arrays.append(target)

    def _gradient(self, array: str) -> str | None:
        """The array with a gradient, all of whose parts are known; None where there is none."""
        if array not in self.gradients:
            self.gradients[array] = self._sum(array)
        return self.gradients[array]

    def _sum(self, array: str) -> str | None:
        parts = self.parts[array]
        if not parts.values and len(parts.arrays) < 2:
            return parts.arrays[0] if parts.arrays else None
        dtype, shape = self.sdfg.arrays[array].dtype, self.forward.shape(array)
        if dtype in COMPLEX:
            return self._complex_sum(array, parts.arrays)
        index = parameters(len(shape))
        terms = [read(a, dtype, index, shape) for a in parts.arrays]
        reducing = [v for v in parts.values if find_reductions(v)]
        terms += [v for v in parts.values if not find_reductions(v)]
        if len(reducing) > 1 or (reducing and terms):
            terms += [read(self._write(f"{array}_gradient", array, v), dtype, index, shape) for v in reducing]
        else:
            terms += reducing
        total = terms[0]
        for term in terms[1:]:
            total = total + cast(term, total.dtype)
        found = self._write(f"{array}_gradient", array, total)
        self.network.origins[found] = tuple(parts.origins)
        return found

    def _complex_sum(self, array: str, terms: Sequence[str]) -> str:
        """Generated code has no complex numbers: torch adds them."""
        total = terms[0]
        for term in terms[1:]:
            total = self._by_torch("aten.add.Tensor", array, total, term)
        return total

    def _by_torch(self, name: str, like: str, *read_arrays: str) -> str:
        """A gradient that an operator of torch makes of arrays."""
        made, node = self._new(f"{like}_gradient", like), plain_node(name, len(read_arrays))
        self.state.add_node(node)
        for n, array in enumerate(read_arrays):
            memlet = self._whole(array)
            self.state.add_edge(self.builder.node_of(array), None, node, f"operands__{n}", memlet)
        self.state.add_edge(node, "results__0", self.builder.node_of(made), None, self._whole(made))
        return made

    def _write(self, name: str, like: str, value: Scalar) -> str:
        target = self._new(name, like)
        self._emit(target, value)
        return target

    def _emit(self, target: str, value: Scalar) -> None:
        shape = self.forward.shape(target)
        self.builder.emit(
            Computation(
                label=target, target=target, index=parameters(len(shape)), params=parameters(len(shape)),
                extents=shape, value=value,
            )
        )  # fmt: skip

    def _zeros(self, array: str) -> str:
        """A gradient that is zero everywhere."""
        if self.sdfg.arrays[array].dtype in COMPLEX:
            return self._by_torch("aten.zeros_like.default", array, array)
        return self._write(
            f"{array}_gradient", array, literal(0.0, compute_type(self.sdfg.arrays[array].dtype))
        )

    def _hold(self, what: str, shape: Sequence[Index], dtype: DType, value: Scalar) -> str:
        name, _ = self.sdfg.add_transient(what, tuple(shape), dtype, find_new_name=True)
        self._emit(name, value)
        self.network.origins[name] = self.origin
        return name

    def _new(self, name: str, like: str, *, transient: bool = True) -> str:
        desc = self.sdfg.arrays[like]
        found, _ = self.sdfg.add_array(name, desc.shape, desc.dtype, transient=transient, find_new_name=True)
        if like in self.network.scalars:
            self.network.scalars |= {found}
        return found

    def _whole(self, array: str) -> dace.Memlet:
        shape = self.sdfg.arrays[array].shape
        return dace.Memlet(data=array, subset=Range([(0, n - 1, 1) for n in shape]))


def _attributes(node: ONNXNode, rule: Rule) -> dict[str, Any]:
    """Attributes of the forward node that the backward one has, too."""
    known = rule.node.schema.attributes
    values = node.attribute_values()
    return {name: value for name, value in values.items() if name in known and value is not None}
