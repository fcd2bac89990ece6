"""The steps of a forward pass as the choice between storing and recomputing sees them.

What each reads, writes and costs, and why some cannot run again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from dace.data import View
from dace.sdfg import nodes

from daceml.autodiff.activity import reads, steps, stops, writes
from daceml.autodiff.custom_gradients import is_custom
from daceml.autodiff.partition import forward_nodes, to_root
from daceml.errors import NoImplementationError
from daceml.onnx_ops.binding import bind
from daceml.onnx_ops.lowering import Choice, choose
from daceml.onnx_ops.schema.node import ONNXNode
from daceml.onnx_ops.schema.random_operators import draws
from daceml.sdfg.builder import Computation
from daceml.sdfg.external import AtenCall
from daceml.sdfg.network_costs import call_cost
from daceml.sdfg.outline import Outliner
from daceml.sdfg.scopes import scope_nodes
from daceml.sdfg.sizes import Size, number_of_all, product, size
from daceml.sdfg.tasklet_code import find_reductions

if TYPE_CHECKING:
    from daceml.sdfg.costs import Cost
    from daceml.sdfg.network import Network

EXAMPLE_SIZE = 16
"""Costs of networks with symbolic sizes are compared at this value of every symbol."""

# Computing in bytes of traffic that take as long. Rules of thumb of a core at 10 GB/s; they only decide
# between plans, which all compute the same.
_BYTES_PER_FLOP = 0.2
_BYTES_PER_SPECIAL_FUNCTION = 8.0


@dataclass(frozen=True, kw_only=True)
class ForwardStep:
    """One top-level step of the forward pass.

    Attributes:
        reads, writes: arrays; views are resolved to the arrays that they are views of.
        elementwise: whether each result needs few elements and nothing is summed up: fusion can take it in.
        computing: cost of its arithmetic, in bytes of traffic that take as long.
        moving: bytes that it moves where it runs on its own.
        refusal: why it must not run a second time; None where it may.
        views: whether it computes nothing: its result is its operand in another shape.
    """

    node: nodes.Node
    label: str
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    elementwise: bool
    computing: float
    moving: float
    refusal: str | None = None
    views: bool = False


class ForwardSteps:
    """What the forward half of a network with gradients computes, and what the other half wants of it.

    Facts are kept as they were when they were first asked for, while copies of steps change the network.
    """

    def __init__(self, network: Network) -> None:
        self.network, self.state = network, network.state
        self.ahead = forward_nodes(network)
        self.changeable = frozenset({*network.inputs, *network.weights})
        self.free = {*self.changeable, *network.constants}
        self.returned = {*network.outputs, *network.mutations}
        self._steps: dict[nodes.Node, ForwardStep] = {}
        self._choices: dict[nodes.Node, Choice | str] = {}
        self._reads: dict[nodes.Node, tuple[str, ...]] = {}
        self._bytes: dict[str, int] = {}
        self._elements: dict[tuple[nodes.Node, str], bool] = {}
        self._outliner = Outliner()

    @cached_property
    def roots(self) -> dict[str, str]:
        """Array -> the array that it is a view of, or itself."""
        arrays = self.network.sdfg.arrays
        viewing = [n for n in self.state.data_nodes() if isinstance(arrays[n.data], View)]
        return {a: a for a in arrays} | {n.data: to_root(self.state, n)[-1].data for n in viewing}

    @cached_property
    def order(self) -> list[nodes.Node]:
        """Steps of both halves that compute something."""
        return [n for n in steps(self.state) if not isinstance(n, nodes.AccessNode)]

    @cached_property
    def producers(self) -> dict[str, nodes.Node]:
        """Array of the forward half -> the step that writes it."""
        return {a: n for n in self.order if n in self.ahead for a in writes(self.state, n)}

    @cached_property
    def writers(self) -> Counter[str]:
        """How many steps write an array; parts of one array may come from several."""
        return Counter(a for n in self.order for a in writes(self.state, n))

    @cached_property
    def needed(self) -> tuple[str, ...]:
        """What the backward half reads of the forward one's own results, in order."""
        wanted = [a for n in self.order if n not in self.ahead for a in self.read_by(n)]
        return tuple(dict.fromkeys(a for a in wanted if a in self.producers and a not in self.free))

    def read_by(self, node: nodes.Node) -> tuple[str, ...]:
        """Arrays that a step reads, without views and without repetition."""
        if node not in self._reads:
            self._reads[node] = tuple(dict.fromkeys(self.roots[a] for a in reads(self.state, node)))
        return self._reads[node]

    @cached_property
    def _readers(self) -> dict[str, list[nodes.Node]]:
        """Array -> steps of both halves that read it, in order."""
        found: dict[str, list[nodes.Node]] = {}
        for node in self.order:
            for array in self.read_by(node):
                found.setdefault(array, []).append(node)
        return found

    def readers(self, array: str, among: Container[nodes.Node]) -> list[nodes.Node]:
        """Steps that read an array, in order; `among`, a set or a mapping, are those that count."""
        return [n for n in self._readers.get(array, ()) if n in among]

    def array_bytes(self, array: str) -> int:
        """Bytes of an array, symbols at their example size."""
        if array not in self._bytes:
            desc = self.network.sdfg.arrays[array]
            self._bytes[array] = at_example(product(size(s) for s in desc.shape)) * desc.dtype.bytes
        return self._bytes[array]

    def temporary_bytes(self, node: nodes.Node) -> int:
        """What the vendor's function behind an operator of either half takes besides its results."""
        if not isinstance(node, ONNXNode) or is_custom(node) or stops(node):
            return 0
        call = self._aten_call(node)
        return 0 if call is None else at_example(call.temporary_bytes)

    def step(self, node: nodes.Node) -> ForwardStep:
        """The facts about a step of the forward half."""
        if node not in self._steps:
            found = self._map(node) if isinstance(node, nodes.MapEntry) else self._operator(node)
            shared = [a for a in found.writes if self.writers[a] > 1]
            if shared and found.refusal is None:
                found = replace(found, refusal=f"it writes only a part of {shared[0]}")
            self._steps[node] = found
        return self._steps[node]

    def fusing_readers(self, array: str, among: Container[nodes.Node]) -> bool:
        """Whether every one of these steps reads an array as fusion needs it: element by element."""
        readers = self.readers(array, among)
        for reader in readers:
            if (reader, array) not in self._elements:
                self._elements[reader, array] = self._reads_elements(reader, array)
        return all(self._elements[reader, array] for reader in readers)

    # ------------------------------------------------------------------ kinds of steps

    def _map(self, entry: nodes.MapEntry) -> ForwardStep:
        call = self._outliner.outline(self.network.sdfg, self.state, entry)
        cost = call_cost(call)
        found, written = self.read_by(entry), tuple(writes(self.state, entry))
        inner = scope_nodes(self.state, entry)
        plain = all(isinstance(n, nodes.Tasklet | nodes.EntryNode | nodes.ExitNode) for n in inner)
        plain = plain and len(inner) == 3 and len(written) == 1
        values = _at_example(cost)
        return ForwardStep(
            node=entry,
            label=entry.map.label,
            reads=tuple(a for a in found if a not in written),
            writes=written,
            elementwise=plain,
            computing=_computing(values.flops, values.special_functions),
            moving=at_example(values.unique_bytes),
        )

    def _operator(self, node: nodes.Node) -> ForwardStep:
        found, written = self.read_by(node), tuple(writes(self.state, node))
        refusal, computing, elementwise = self._again(node)
        return ForwardStep(
            node=node,
            label=getattr(node, "op_type", str(node)),
            reads=found,
            writes=written,
            elementwise=elementwise,
            computing=computing,
            moving=sum(map(self.array_bytes, (*found, *written))),
            refusal=refusal,
            views=refusal is None and getattr(node, "op_type", "") in _VIEWING,
        )

    def _again(self, node: nodes.Node) -> tuple[str | None, float, bool]:
        """Why an operator must not run a second time, else what it computes and whether it is elementwise."""
        if not isinstance(node, ONNXNode) or is_custom(node) or stops(node):
            return "it is not an operator", 0.0, False
        choice = self._choice(node)
        if isinstance(choice, str):
            return choice, 0.0, False
        match choice.implementation.kind:
            case "onnxruntime":
                return "ONNX Runtime executes it", 0.0, False
            case "aten":
                call = self._aten_call(node)
                assert call is not None
                if call.draws or draws(node):
                    return "it draws random numbers", 0.0, False
                return None, _computing(at_example(call.flops), 0), False
            case _:
                if draws(node):
                    return "it draws random numbers", 0.0, False
                written = sum(map(self.array_bytes, writes(self.state, node)))
                return None, written * _arithmetic(node.op_type), self._single(choice)

    def _choice(self, node: ONNXNode) -> Choice | str:
        if node not in self._choices:
            try:
                self._choices[node] = choose(node, self.network)
            except NoImplementationError as error:
                self._choices[node] = str(error.why)
        return self._choices[node]

    def _aten_call(self, node: ONNXNode) -> AtenCall | None:
        choice = self._choice(node)
        if isinstance(choice, str) or choice.implementation.kind != "aten":
            return None
        call = bind(node, self.network).call(choice.implementation.function)
        assert isinstance(call, AtenCall)
        return call

    def _single(self, choice: Choice) -> bool:
        """Whether a choice is one loop over elements."""
        if choice.trace is None or len(choice.trace.computations) != 1 or choice.trace.checks:
            return False
        (only,) = choice.trace.computations
        return isinstance(only, Computation) and not find_reductions(only.value)

    def _reads_elements(self, node: nodes.Node, array: str) -> bool:
        direct = array in set(reads(self.state, node))
        if isinstance(node, ONNXNode):
            choice = self._choice(node)
            return direct and not isinstance(choice, str) and self._single(choice)
        if not isinstance(node, nodes.MapEntry) or not direct:
            return False
        shape = tuple(map(str, self.network.sdfg.arrays[array].shape))
        if tuple(str(s) for s in node.map.range.size()) != shape:
            return False
        wanted = ", ".join(node.map.params)
        inner = [e for e in self.state.out_edges(node) if e.data.data == array]
        return all(isinstance(e.dst, nodes.Tasklet) and str(e.data.subset) == wanted for e in inner)


# Lowered to views: see `daceml.onnx_ops.native.shape_ops`
_VIEWING = frozenset({"Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze"})
# What an elementwise operator computes, in bytes of traffic for a byte of its result. Vector code has an
# exponential in 0.27 ns; a derivative of these functions computes it anyway, and fusion computes it once.
_ARITHMETIC = {
    **dict.fromkeys(("Exp", "Sigmoid", "Softplus", "Swish", "Mish"), 0.7),
    **dict.fromkeys(("Tanh", "Log", "Sqrt", "Elu", "Celu", "Selu"), 1.0),
}
_PLAIN = frozenset(
    {
        *("Abs", "Add", "And", "Cast", "Ceil", "Clip", "Div", "DropoutProduct", "Equal", "Expand", "Floor"),
        *("Greater", "GreaterOrEqual", "HardSigmoid", "HardSwish", "LeakyRelu", "Less", "LessOrEqual", "Max"),
        *("Min", "Mul", "Neg", "Not", "Or", "PRelu", "Reciprocal", "Relu", "Sign", "Slice", "Sub"),
        *("ThresholdedRelu", "Transpose", "Where"),
    }
)
_DEAR_ARITHMETIC = 2.0


def _arithmetic(op_type: str) -> float:
    return 0.1 if op_type in _PLAIN else _ARITHMETIC.get(op_type, _DEAR_ARITHMETIC)


def at_example(amount: Size) -> int:
    """A size at the example value of every symbol."""
    return number_of_all(amount, EXAMPLE_SIZE)


def _at_example(cost: Cost) -> Cost:
    return cost.mapped(at_example)


def _computing(flops: Size, special_functions: Size) -> float:
    return at_example(flops) * _BYTES_PER_FLOP + at_example(special_functions) * _BYTES_PER_SPECIAL_FUNCTION


def is_static(network: Network, arrays: Iterable[str]) -> bool:
    """Whether the sizes of arrays are numbers."""
    descs = [network.sdfg.arrays[a] for a in arrays]
    return all(isinstance(product(size(s) for s in d.shape), int) for d in descs)
