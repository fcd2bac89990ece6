"""write_in_place: a loop that is the only reader of an array writes its result into the same memory.

T[i] = f(R[i], ...)   ->   R[i] = f(R[i], ...)      nobody else reads R

What a vendor's kernel has just written is still in the cache, and no second array of its size is brought
there: an activation behind a convolution takes half as long.
"""

from __future__ import annotations

import dace
from dace.sdfg import nodes
from dace.sdfg.graph import MultiConnectorEdge

from daceml.onnx_ops.schema.node import ONNXNode
from daceml.sdfg.network import Network
from daceml.sdfg.passes import PassRecord, refused_arrays
from daceml.sdfg.scopes import exit_of


def write_in_place(network: Network) -> tuple[str, ...]:
    """Let loops write where they read; returns the arrays that disappeared. Mutates the network's SDFG."""
    return _InPlace(network).run()


class _InPlace:
    def __init__(self, network: Network) -> None:
        self.network, self.sdfg, self.state = network, network.sdfg, network.state
        self.children = self.state.scope_children()
        self.places: dict[str, list[nodes.AccessNode]] = {}
        for node in self.state.data_nodes():
            self.places.setdefault(node.data, []).append(node)
        interface = (*network.inputs, *network.outputs, *network.weights, *network.constants)
        checked = (check.array for check in (*network.checks, *network.limits))
        self.fixed = {*interface, *network.prepared, *network.mutations, *checked}

    def run(self) -> tuple[str, ...]:
        sources: dict[str, str] = {}
        refused: dict[str, str] = {}
        for array, places in self.places.items():
            if len(places) != 1 or not self._is_result_of_call(places[0]):
                continue
            found = self._target(places[0])
            if isinstance(found, str):
                refused[array] = found
            else:
                sources[found.data] = array
        self._join(sources)
        self.network.passes.append(
            PassRecord(
                level="layout",
                name="write_in_place",
                applied={"write_in_place": len(sources)} if sources else {},
                refused=refused_arrays(self.sdfg, refused),
            )
        )
        return tuple(sources)

    def _is_result_of_call(self, node: nodes.AccessNode) -> bool:
        """Whether an operator gives it as a whole; what loops write, fuse_maps has joined with its reader."""
        return [isinstance(e.src, ONNXNode) for e in self.state.in_edges(node)] == [True]

    def _target(self, node: nodes.AccessNode) -> nodes.AccessNode | str:
        """What a loop makes of an array and may write in its place, or why there is no such thing."""
        source = node.data
        if not self._is_own(source):
            return "it belongs to the caller or is a view"
        readers = self.state.out_edges(node)
        if len(readers) != 1:
            return f"{len(readers)} steps read it"
        entry = readers[0].dst
        if not isinstance(entry, nodes.MapEntry):
            return "no generated kernel reads it"
        exit_ = exit_of(self.state, entry)
        results = self.state.out_edges(exit_)
        inside = self.state.in_edges(exit_)
        if len(results) != 1 or len(inside) != 1:
            return "the kernel that reads it writes several arrays"
        target = results[0].dst
        if any(isinstance(n, nodes.MapEntry) for n in self.children[entry]):
            return "a kernel accesses its elements more than once"
        if len(self.places[target.data]) != 1 or self.state.in_degree(target) != 1:
            return f"{target.data} is written in parts"
        if not self._is_own(target.data):
            return f"{target.data} belongs to the caller, or is a view"
        if self._layout(source) != self._layout(target.data):
            return f"{target.data} has another shape, type or layout"
        if inside[0].data.wcr is not None:
            return f"{target.data} is added to"
        place = str(inside[0].data.subset)
        reads = [e for e in self.state.out_edges(entry) if e.data.data == source]
        if any(str(e.data.subset) != place for e in reads):
            return "the kernel reads elements other than the one it writes"
        return target

    def _is_own(self, array: str) -> bool:
        desc = self.sdfg.arrays[array]
        if array in self.fixed or not desc.transient or type(desc) is not dace.data.Array:
            return False
        edges = [e for place in self.places[array] for e in self.state.all_edges(place)]
        # a copy, or a view
        ends = [(e.src, e.dst) for e in edges]
        return not any(isinstance(a, nodes.AccessNode) and isinstance(b, nodes.AccessNode) for a, b in ends)

    def _layout(self, array: str) -> tuple[object, ...]:
        desc = self.sdfg.arrays[array]
        return tuple(map(str, desc.shape)), tuple(map(str, desc.strides)), desc.dtype

    def _join(self, sources: dict[str, str]) -> None:
        """Put arrays in the place of what loops make of them.

        Args:
            sources: what a loop writes -> what it reads.
        """
        if not sources:
            return
        connectors = {f"{end}{t}": f"{end}{s}" for t, s in sources.items() for end in ("IN_", "OUT_")}
        edges: list[MultiConnectorEdge[dace.Memlet]] = list(self.state.edges())  # pyright: ignore
        for edge in edges:
            if edge.data.data in sources:
                edge.data.data = sources[edge.data.data]
            if isinstance(edge.src, nodes.EntryNode | nodes.ExitNode):
                edge.src_conn = connectors.get(edge.src_conn, edge.src_conn)
            if isinstance(edge.dst, nodes.EntryNode | nodes.ExitNode):
                edge.dst_conn = connectors.get(edge.dst_conn, edge.dst_conn)
        for node in self.state.nodes():
            if isinstance(node, nodes.AccessNode):
                node.data = sources.get(node.data, node.data)
            elif isinstance(node, nodes.EntryNode | nodes.ExitNode):
                for known in (node.in_connectors, node.out_connectors):
                    for name in [name for name in known if name in connectors]:
                        known[connectors[name]] = known.pop(name)
        for target in sources:
            self.sdfg.remove_data(target, validate=False)
