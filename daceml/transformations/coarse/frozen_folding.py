"""fold_frozen_weights: what depends on weights alone is computed when a program is bound, not at calls.

f(weights, constants)   ->   a prepared array

A weight norm, a low-rank correction that is added to a weight, a table of position biases in the order in
which attention reads it, a weight in channels-last order: at every call that was work, and what reads the
result saw no weight (`packed_weights.py`, `batch_norm_folding.py`). Operators compute in float64, and each
rounds to its type, as in eager PyTorch. What is much larger than the weights that it is made of, as what
broadcasts them, stays in the loops that read it. On one thread a layer of 768 x 768 with a correction of rank
8 takes 0.45 of the time for 32 rows, four convolutions under a weight norm 0.93. Source: Rausch et al.,
DaCeML, ICS '22 (ParameterToTransient).

Weights that may change are watched (`layout/watched_weights.py`): each call reads their bytes. That pays for
copies of whole weights, as of a recurrent layer's gates, which ONNX has in another order than torch.
"""

from __future__ import annotations

from dace.sdfg import nodes
from dace.sdfg.utils import dfs_topological_sort

from daceml.onnx_ops.schema.element_types import BY_DACE_TYPE
from daceml.onnx_ops.schema.node import ONNXNode
from daceml.sdfg.access import add_access
from daceml.sdfg.network import Network, Preparation
from daceml.sdfg.passes import PassRecord, Refusal
from daceml.sdfg.scopes import exit_of
from daceml.sdfg.sizes import product
from daceml.transformations.coarse.frozen_calls import Call, call_of
from daceml.transformations.rewriting.pattern import OperatorGraph
from daceml.transformations.rewriting.refusals import refused_node
from daceml.transformations.rewriting.replacement import Value, remove_unread, take_place

NAME = "fold_frozen_weights"
# Bytes of a result for each byte of the weights that it is made of
_MOST_GROWTH = 2
# Results of this size may be larger than that
_SMALL_BYTES = 16_384
# What only copies elements of weights, besides views
_COPIES = frozenset({"Concat", "Identity", "Reshape", "Slice", "Split", "Squeeze", "Transpose", "Unsqueeze"})
# Constants beside weights are part of the program's record
_MOST_CONSTANT_BYTES = 16_384


def fold_frozen_weights(network: Network, *, watched: bool = False) -> int:
    """Prepare what depends on weights only. Mutates the network, which is not lowered yet.

    Args:
        watched: weights may change, so each call reads all bytes of those that something is made of: only
            copies that move at least as much are prepared.
    Returns:
        how many operators and copies disappeared.
    """
    if watched and network.live:
        return 0
    relaid = 0 if watched else _prepare_relayouts(network)
    folding = _Folding(network, watched=watched)
    for node in [n for n in dfs_topological_sort(network.state) if isinstance(n, ONNXNode)]:
        folding.visit(node)
    folded = folding.replace()
    network.sdfg.reset_cfg_list()
    counts = {"operators": folded, "copies of weights": relaid}
    network.passes.append(
        PassRecord(
            level="coarse",
            name=NAME,
            applied={name: count for name, count in counts.items() if count},
            refused=tuple(folding.refused),
        )
    )
    return folded + relaid


class _Folding:
    """Results of a network that can be known when it is bound.

    Attributes:
        calls: array -> how it is made.
        sources: array -> the weights that it is made of.
    """

    def __init__(self, network: Network, *, watched: bool) -> None:
        self.network, self.graph, self.watched = network, OperatorGraph(network), watched
        self.calls: dict[str, Call] = {}
        self.sources: dict[str, frozenset[str]] = {}
        self.folded: dict[ONNXNode, None] = {}
        self.refused: list[Refusal] = []
        changed = set(network.mutations.values())
        for array in (*network.weights, *(a for a, made in network.prepared.items() if not made.packed)):
            if array not in changed:
                self.sources[array] = frozenset((array,))

    def visit(self, node: ONNXNode) -> None:
        """Learn how the results of a node are made, whose operands are known."""
        operands = [a for a in self.graph.operands(node) if a is not None]
        constants = self.network.constants
        if not any(a in self.sources for a in operands) or not all(
            a in self.sources or a in constants for a in operands
        ):
            return
        made = self._calls(node)
        if isinstance(made, str):
            self._refuse(node, made)
            return
        self.calls |= made
        for array, call in made.items():
            self.sources[array] = frozenset[str]().union(*(self.sources.get(a, ()) for a in call.operands))
        self.folded[node] = None

    def _calls(self, node: ONNXNode) -> dict[str, Call] | str:
        if self.watched and node.op_type not in _COPIES:
            return "it does more than copy, and its weights may change"
        if node.implementation:
            return "its implementation is already chosen"
        found: dict[str, Call] = {}
        for place, array in enumerate(self.graph.results(node)):
            if array is None:
                continue
            if self.graph.is_result(array):
                return "it is a result of the network, so a prepared array would have to be copied"
            result = Value(array, self.graph)
            if not all(isinstance(n, int) for n in result.shape):
                return "a size of its result is symbolic"
            call = call_of(node, self.graph, place)
            if isinstance(call, str):
                return call
            if any(
                a in self.network.constants and self.network.constants[a].nbytes > _MOST_CONSTANT_BYTES
                for a in call.operands
            ):
                return f"a constant of more than {_MOST_CONSTANT_BYTES} bytes would be stored twice"
            found[array] = call
        return found

    def _wanted(self, node: ONNXNode) -> list[str]:
        """Results of a node that somebody reads who stays."""
        written = [a for a in self.graph.results(node) if a is not None]
        return [a for a in written if any(r not in self.folded for r in self.graph.readers(a))]

    def _growth(self, array: str) -> str | None:
        from_bytes = sum(_bytes(Value(source, self.graph)) for source in self.sources[array])
        to_bytes = _bytes(Value(array, self.graph))
        if self.watched:
            moved = 2 * to_bytes  # read and written
            few = moved < from_bytes
            return (
                f"a look at {from_bytes} bytes of weights takes longer than moving {moved}" if few else None
            )
        if to_bytes <= max(_SMALL_BYTES, _MOST_GROWTH * from_bytes):
            return None
        return f"its {to_bytes} bytes are made of {from_bytes} bytes of weights"

    def replace(self) -> int:
        """Let what stays read prepared arrays; how many operators went."""
        for node in list(reversed(self.folded)):
            reason = next(filter(None, map(self._growth, self._wanted(node))), None)
            if reason is not None:  # it stays, and reads what can be prepared in front of it
                del self.folded[node]
                self._refuse(node, reason)
        for node in self.folded:
            for array in self._wanted(node):
                take_place(self.graph, array, self._prepared(array))
        # readers first: what only they read goes with them
        for node in reversed(self.folded):
            remove_unread(self.graph, [node])
        return sum(not self.graph.holds(node) for node in self.folded)

    def _prepared(self, array: str) -> str:
        """The prepared array with the value of another one; what it is made of is prepared before."""
        name = self._source(array)
        if name not in self.graph.access:
            self.graph.access[name] = add_access(self.network.state, name)
        return name

    def _source(self, array: str) -> str:
        network = self.network
        if array in network.constants:
            return self._made(array, _literal(Value(array, self.graph)))
        if array not in self.calls:
            return array
        call, result = self.calls[array], Value(array, self.graph)
        made = Preparation(
            function=call.function,
            sources=tuple(self._source(a) if a else "" for a in call.operands),
            numbers=(*_typed(result), *call.numbers),
            reals=call.reals,
            packed=False,
        )
        return self._made(array, made)

    def _made(self, array: str, made: Preparation) -> str:
        name = self.network.prepare(made, f"{array}_frozen", self.network.sdfg.arrays[array])
        if array in self.network.scalars:
            self.network.scalars |= {name}
        return name

    def _refuse(self, node: ONNXNode, reason: str) -> None:
        size = sum(_bytes(Value(a, self.graph)) for a in self.graph.results(node) if a is not None)
        self.refused.append(refused_node(node, reason, size))


def _bytes(value: Value) -> int:
    found = product(n for n in value.shape if isinstance(n, int)) * value.dtype.bytes
    return int(found)  # pyright: ignore[reportArgumentType]


def _typed(value: Value) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Element type and shape, with which the numbers of every operator begin."""
    shape = tuple(int(n) for n in value.shape)  # pyright: ignore[reportArgumentType]
    return (BY_DACE_TYPE[value.dtype].onnx_code,), shape


def _literal(value: Value) -> Preparation:
    assert value.constant is not None
    numbers = (*_typed(value), tuple(value.constant.tobytes()))
    return Preparation(function="literal", sources=(), numbers=numbers, packed=False)


def _prepare_relayouts(network: Network) -> int:
    """Weights that lie in another order are copied once. Mutates the network; how many are."""
    state, count = network.state, 0
    for given in list(network.weights):
        access = next((n for n in state.data_nodes() if n.data == given), None)
        if access is None or any(isinstance(e.dst, ONNXNode) for e in state.out_edges(access)):
            continue
        entries = {e.dst for e in state.out_edges(access)}
        if len(entries) != 1 or not isinstance(entry := entries.pop(), nodes.MapEntry):
            continue
        leave = exit_of(state, entry)
        assert leave is not None
        target = state.out_edges(leave)[0].dst
        if entry.map.label != f"relayout_{target.data}":
            continue
        like = network.sdfg.arrays[target.data]
        shape = () if target.data in network.scalars else tuple(int(n) for n in like.shape)
        made = Preparation(
            function="Identity",
            sources=(given,),
            numbers=((BY_DACE_TYPE[like.dtype].onnx_code,), shape),
            packed=False,
        )
        state.remove_nodes_from([*state.all_nodes_between(entry, leave), entry, leave, access])
        like.transient = False
        network.prepared[target.data] = made
        count += 1
    return count
