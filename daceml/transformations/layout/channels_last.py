"""use_channels_last: arrays around convolutions keep their channels innermost in memory, as vendor kernels
want them.

X[n, c, h, w], strides (CHW, HW, W, 1)   ->   X[n, c, h, w], strides (HWC, 1, WC, C)

Indices stay as they are, so no other stage needs to know. A map that writes such an array runs over its
channels innermost. What is an input, a result, a view or an operand of any other call stays row-major; a map
reads one layout and writes the other, and a convolution brings its result into the layout of its array.

Two more things that oneDNN offers are left out, for their numbers would not always be the module's:
- A weight in oneDNN's own order (1.0 to 1.4 times faster, 1.8 for the widest windows) is right only while
  nobody changes the weight, and `parameter.data.add_()` moves neither its address nor a version. Whoever
  promises that with `freeze=True`, or looks at its bytes at every call, gets it: `packed_weights.py`.
- An activation inside the kernel turns NaN into a number: relu and clip into their lower bound. With frozen
  weights limits are known below which there is none: `convolution_activations.py`.
"""

from __future__ import annotations

from collections.abc import Iterator

import dace
from dace.sdfg import nodes
from dace.subsets import Range

from daceml.onnx_ops.schema.node import ONNXNode
from daceml.sdfg.builder import Builder, Computation, parameters
from daceml.sdfg.network import Network
from daceml.sdfg.passes import PassRecord, Refusal
from daceml.sdfg.scalar import read
from daceml.sdfg.sizes import channels_last, product, row_major, size, size_bytes
from daceml.transformations.layout.map_accesses import MapAccesses, map_accesses

_CONVOLUTION = "aten:convolution"
# Channels last against plain, convolution alone (benchmarks/crossover.py): 0.8 at 0.04 million products and
# 1.0 at 0.6 million, 1.3 at 9 million and above; depthwise 1.6 at 0.02 million, up to 3 at 11 million.
_FEWEST_PRODUCTS = 1_000_000
# A kernel for channels last wants the weight in an order of its own, which is made at every call, and slowly
# for windows of several elements: 1.0 where the weight has 6 times the elements of the result, 0.5 at 47.
_LARGEST_WEIGHT = 12
# The order in which dimensions of (n, c, h, w) lie in memory, outermost first.
_MEMORY_ORDER = (0, 2, 3, 1)


def use_channels_last(network: Network, *, frozen: bool = False) -> tuple[str, ...]:
    """Change the layout of the arrays around convolutions; returns those changed. Mutates the network.

    Args:
        frozen: weights are put into a kernel's order once, not at every call.
    """
    return _ChannelsLast(network, frozen).run()


class _ChannelsLast:
    def __init__(self, network: Network, frozen: bool) -> None:
        self.frozen = frozen and not network.live
        self.network, self.sdfg, self.state = network, network.sdfg, network.state
        self.gaining: list[ONNXNode] = []
        self.maps = map_accesses(network.state)
        self.whole = {id(entry.map): accesses.whole for entry, accesses in self.maps.items()}
        self.refusals: dict[str, str | None] = {}
        self.places: dict[str, list[nodes.AccessNode]] = {}
        scopes = self.state.scope_dict()
        self.inside: set[str] = set()
        for node in self.state.data_nodes():
            self.places.setdefault(node.data, []).append(node)
            if scopes[node] is not None:
                self.inside.add(node.data)
        interface = (*network.inputs, *network.outputs, *network.weights, *network.constants)
        self.fixed = {*interface, *network.mutations, *(check.array for check in network.checks)}

    def run(self) -> tuple[str, ...]:
        no_gain = {node: self._no_gain(node) for node in self._convolutions()}
        refused = {self._array(node, "Y"): reason for node, reason in no_gain.items() if reason is not None}
        self.gaining = [node for node, reason in no_gain.items() if reason is None]
        chosen: set[str] = set()
        for node in self.gaining:
            for array in (self._array(node, "X"), self._array(node, "Y")):
                if (reason := self.refusal(array)) is None:
                    chosen.add(array)
                else:
                    refused[array] = reason
        self._spread(chosen)
        copies: dict[str, str] = {}
        for node in self.gaining:
            x = self._array(node, "X")
            if x not in chosen and self._array(node, "Y") in chosen and self._smaller(x, node):
                if x not in copies:
                    copies[x] = self._copy_of(x)
                self._read_from(node, copies[x])
        chosen |= set(copies.values())
        changed = tuple(array for array in self.sdfg.arrays if array in chosen)
        for array in changed:
            self._change(array)
        for entry, accesses in self.maps.items():
            self._reorder(entry, accesses, chosen)
        self._report(changed, refused)
        return changed

    # ---- which

    def _convolutions(self) -> Iterator[ONNXNode]:
        for node in self.state.nodes():
            if isinstance(node, ONNXNode) and node.op_type == "Conv" and node.implementation == _CONVOLUTION:
                yield node

    def _array(self, node: ONNXNode, connector: str) -> str:
        edges = [*self.state.in_edges(node), *self.state.out_edges(node)]
        return next(str(e.data.data) for e in edges if connector in (e.dst_conn, e.src_conn))

    def _no_gain(self, node: ONNXNode) -> str | None:
        """Why a convolution is not faster with its channels last."""
        x, y, w = (self.sdfg.arrays[self._array(node, c)] for c in ("X", "Y", "W"))
        if len(x.shape) != 4:
            return f"torch's kernels for {len(x.shape) - 2} spatial dimensions gain nothing"
        if x.dtype != dace.float32:
            return f"oneDNN has no kernel for {x.dtype.to_string()}"
        products = product(size(s) for s in (*y.shape, *w.shape[1:]))
        depthwise = size(w.shape[1]) == 1 and size(w.shape[0]) == size(x.shape[1])
        if not depthwise and isinstance(products, int) and products < _FEWEST_PRODUCTS:
            return (
                f"the convolution has {products} multiplications; "
                f"the layout does not pay below {_FEWEST_PRODUCTS}"
            )
        weight, result = product(size(s) for s in w.shape), product(size(s) for s in y.shape)
        window = product(size(s) for s in w.shape[2:])
        known = isinstance(weight, int) and isinstance(result, int)
        if not self.frozen and window != 1 and known and weight > _LARGEST_WEIGHT * result:
            return "its weight is large compared with its result and would be reordered at every call"
        if self._is_summed_over_batch(self._array(node, "Y")):
            return "each sum of a channel over the batch would read the whole array"
        return None

    def _is_summed_over_batch(self, array: str) -> bool:
        """Whether a map reads all samples for every channel, as batch statistics do."""
        return any(
            source == array and at[0] and at[0].isdisjoint(entry.map.params)
            for entry, accesses in self.maps.items()
            for source, at in accesses.reads
        )

    def refusal(self, array: str) -> str | None:
        """Why an array stays row-major."""
        if array not in self.refusals:
            self.refusals[array] = self._refusal(array)
        return self.refusals[array]

    def _refusal(self, array: str) -> str | None:
        desc = self.sdfg.arrays[array]
        shape = tuple(size(s) for s in desc.shape)
        if array in self.fixed or not desc.transient:
            return "it belongs to the caller"
        if type(desc) is not dace.data.Array or len(shape) != 4 or desc.dtype != dace.float32:
            return "it is not a four-dimensional float32 array"
        if list(map(str, desc.strides)) != list(map(str, row_major(shape))):
            return "its layout is fixed"
        if 1 in (shape[1], product(shape[2:])):
            return "both layouts are the same in memory"
        if self._is_summed_over_batch(array):
            return "its channels are summed over the batch"
        if array in self.inside:
            return "a map accesses its elements more than once"
        for node in self.places[array]:
            for edge in self.state.all_edges(node):
                other = edge.src if edge.dst is node else edge.dst
                if isinstance(other, nodes.AccessNode):
                    return "it is copied or viewed in another shape"
                if isinstance(other, ONNXNode) and not self._takes(other, edge.src_conn or edge.dst_conn):
                    return f"{other.op_type} takes it in row-major order"
                scope = isinstance(other, nodes.MapEntry | nodes.MapExit)
                if scope and array in self.whole[id(other.map)]:
                    return "a map reads it at positions that depend on data"
        return None

    def _takes(self, node: ONNXNode, connector: str | None) -> bool:
        return node in self.gaining and connector in ("X", "Y")

    def _spread(self, chosen: set[str]) -> None:
        """Arrays that a map computes channel by channel from one that is chosen, or one that is from them."""
        if not chosen:
            return
        rows = [row for accesses in self.maps.values() for row in accesses.pairs]
        waiting = True
        while waiting:
            waiting = False
            for source, target in rows:
                for known, other in ((source, target), (target, source)):
                    if known in chosen and other not in chosen and self.refusal(other) is None:
                        chosen.add(other)
                        waiting = True

    def _smaller(self, x: str, node: ONNXNode) -> bool:
        """Whether it is cheaper to bring the operand into another layout than the result."""
        before, after = (product(map(size, self.sdfg.arrays[a].shape)) for a in (x, self._array(node, "Y")))
        return isinstance(before, int) and isinstance(after, int) and before <= after

    # ---- how

    def _copy_of(self, array: str) -> str:
        """A copy of an operand of convolutions, which may have another layout."""
        shape = tuple(size(s) for s in self.sdfg.arrays[array].shape)
        dtype = self.sdfg.arrays[array].dtype
        name, _ = self.sdfg.add_transient(f"{array}_channels_last", shape, dtype, find_new_name=True)
        params = parameters(4)
        entry = Builder(self.sdfg, self.state).emit(
            Computation(
                label=f"channels_last_{array}",
                target=name,
                index=params,
                params=params,
                extents=shape,
                value=read(array, dtype, params, shape),
            )
        )
        assert entry is not None, "a convolution of nothing is no call"
        self.maps |= {e: a for e, a in map_accesses(self.state).items() if e not in self.maps}
        return name

    def _read_from(self, node: ONNXNode, array: str) -> None:
        (edge,) = self.state.in_edges_by_connector(node, "X")
        (source,) = [n for n in self.state.data_nodes() if n.data == array]
        memlet = dace.Memlet.from_array(array, self.sdfg.arrays[array])
        self.state.add_edge(source, None, node, "X", memlet)
        self.state.remove_edge(edge)

    def _change(self, array: str) -> None:
        desc = self.sdfg.arrays[array]
        desc.set_shape(desc.shape, strides=channels_last(tuple(size(s) for s in desc.shape)))

    def _reorder(self, entry: nodes.MapEntry, accesses: MapAccesses, chosen: set[str]) -> None:
        """Let a map go through what it writes in the order of its memory."""
        written = next((subset for array, subset in accesses.writes if array in chosen), None)
        if written is None:
            return
        places = [written[d] for d in _MEMORY_ORDER]

        def rank(param: str) -> int:
            return next((i for i, symbols in enumerate(places) if param in symbols), len(places))

        order = sorted(range(len(entry.map.params)), key=lambda p: rank(entry.map.params[p]))
        ranges = entry.map.range.ranges
        entry.map.params = [entry.map.params[p] for p in order]
        entry.map.range = Range([ranges[p] for p in order])

    def _report(self, changed: tuple[str, ...], refused: dict[str, str]) -> None:
        self.network.passes.append(
            PassRecord(
                level="layout",
                name="use_channels_last",
                applied={"use_channels_last": len(changed)} if changed else {},
                refused=tuple(
                    Refusal(subject=array, reason=reason, size_bytes=size_bytes(self.sdfg.arrays[array]))
                    for array, reason in refused.items()
                ),
            )
        )
