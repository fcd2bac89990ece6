"""fuse_maps: a map that reads element by element what one other map writes joins it; the array between
disappears.

T[i] = f(X[i]);  Y[i] = g(T[i])   ->   Y[i] = g(f(X[i]))
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import dace
from dace.sdfg import nodes
from dace.subsets import Range

from daceml.sdfg.access import add_access
from daceml.sdfg.network import Network
from daceml.sdfg.passes import ELSEWHERE, PassRecord, by_place, refused_arrays

# The time that DaCe takes to write a kernel grows with the square of them
MOST_COMPUTATIONS = 128


@dataclass(frozen=True, kw_only=True)
class FusionReport:
    """What happened.

    Attributes:
        fused: arrays that disappeared.
        refused: array -> why it stayed.
        absorbed: array that a fused map writes -> the arrays that disappeared into that map.
    """

    fused: tuple[str, ...]
    refused: dict[str, str]
    absorbed: dict[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])

    def sentences(self) -> tuple[str, ...]:
        """Why arrays stayed, one sentence a reason, with how many and one example."""
        examples = {reason: array for array, reason in reversed(self.refused.items())}
        counts = Counter(self.refused.values())
        return tuple(
            f"fuse_maps: {reason} ({count} array{'s' * (count > 1)}, for example {examples[reason]})"
            for reason, count in counts.most_common()
        )


@by_place
def fuse_maps(network: Network) -> FusionReport:
    """Fuse producer and consumer maps wherever `refusal` has nothing to say. Mutates the network's SDFG."""
    report = _Fusion(network).run()
    network.passes.append(_record(report, network))
    return report


def _record(report: FusionReport, network: Network) -> PassRecord:
    return PassRecord(
        level="local",
        name="fuse_maps",
        applied={"fuse_maps": len(report.fused)} if report.fused else {},
        refused=refused_arrays(network.sdfg, report.refused),
        places=report.fused,
    )


class _Fusion:
    """One pass over the network; scopes are looked up here, since DaCe recomputes them after every change."""

    def __init__(self, network: Network) -> None:
        self.network, self.sdfg, self.state = network, network.sdfg, network.state
        self.kept = {*network.outputs, *network.mutations}
        self.indices = {check.array for check in network.checks}
        self.entries = {id(n.map): n for n in self.state.nodes() if isinstance(n, nodes.MapEntry)}
        self.exits = {id(n.map): n for n in self.state.nodes() if isinstance(n, nodes.MapExit)}
        self.inside: dict[int, list[str]] = {}
        self.computations = Counter(
            id(scope.map)
            for node, scope in self.state.scope_dict().items()
            if isinstance(node, nodes.Tasklet) and isinstance(scope, nodes.MapEntry)
        )

    def run(self) -> FusionReport:
        scopes = self.state.scope_dict()
        candidates = [
            n for n in self.state.data_nodes() if scopes[n] is None and self.sdfg.arrays[n.data].transient
        ]
        fused: list[str] = []
        refused: dict[str, str] = {}
        for node in candidates:
            reason = self.refusal(node)
            if reason is None and not self.network.may_change(node.data):
                reason = ELSEWHERE
            if reason is None:
                self.fuse(node)
                fused.append(node.data)
            else:
                refused[node.data] = reason
        absorbed = self.absorbed()
        for array, arrays in absorbed.items():
            self.network.absorb(array, arrays)
        return FusionReport(fused=tuple(fused), refused=refused, absorbed=absorbed)

    def absorbed(self) -> dict[str, tuple[str, ...]]:
        """Array that a fused map writes -> the arrays that disappeared into that map."""
        return {
            edge.data.data: tuple(arrays)
            for key, arrays in self.inside.items()
            for edge in self.state.out_edges(self.exits[key])
            if edge.data.data is not None
        }

    def refusal(self, node: nodes.AccessNode) -> str | None:
        """Why the array at `node` must exist; None if its writer and its reader can be one map."""
        state = self.state
        if node.data in self.kept:
            return "the network returns it"
        if node.data in self.indices:
            return "its elements are indices, which are checked before use"
        if isinstance(self.sdfg.arrays[node.data], dace.data.View):
            return "it is a view"
        writers, readers = state.in_edges(node), state.out_edges(node)
        if len(writers) != 1 or not isinstance(writers[0].src, nodes.MapExit):
            return "it is not the result of a single map"
        if len(readers) != 1:
            return f"it has {len(readers)} readers"
        if not isinstance(readers[0].dst, nodes.MapEntry):
            return "a library call reads it, not a map"
        producer_exit, consumer = writers[0].src, readers[0].dst
        producer = self.entries[id(producer_exit.map)]
        if state.out_degree(producer_exit) != 1:
            return "the map that writes it has other results"
        (written,) = state.in_edges(producer_exit)
        if not isinstance(written.src, nodes.Tasklet):
            return "the map that writes it accesses its elements more than once"
        if producer.map.params != consumer.map.params or producer.map.range != consumer.map.range:
            return f"it is written over [{producer.map.range}] and read over [{consumer.map.range}]"
        if self.computations[id(producer.map)] + self.computations[id(consumer.map)] > MOST_COMPUTATIONS:
            return f"more than {MOST_COMPUTATIONS} computations in one kernel take too long to compile"
        if written.data.wcr is not None:
            return "the map that writes it accumulates into it"
        for read in _reads(state, consumer, readers[0].dst_conn):
            if not isinstance(read.dst, nodes.Tasklet):
                return "its reader needs many elements for one result"
            if read.data.subset != written.data.subset or read.data.dynamic:
                return f"it is written at [{written.data.subset}] and read at [{read.data.subset}]"
        return None

    def fuse(self, node: nodes.AccessNode) -> None:
        """Join writer and reader of `node` and remove its array."""
        state, sdfg = self.state, self.sdfg
        (into,) = state.out_edges(node)
        producer_exit, consumer = state.in_edges(node)[0].src, into.dst
        producer, consumer_exit = self.entries[id(producer_exit.map)], self.exits[id(consumer.map)]
        (written,) = state.in_edges(producer_exit)

        dtype = sdfg.arrays[node.data].dtype
        name, _ = sdfg.add_scalar(
            f"{node.data}_value", dtype, dace.StorageType.Register, transient=True, find_new_name=True
        )
        value = add_access(state, name)
        state.add_edge(written.src, written.src_conn, value, None, _value(name))
        for read in _reads(state, consumer, into.dst_conn):
            state.add_edge(value, None, read.dst, read.dst_conn, _value(name))
            state.remove_edge(read)

        _move_inputs(state, consumer, producer, except_for=into.dst_conn)
        label = f"{producer.map.label}_{consumer.map.label}"
        state.remove_nodes_from([consumer, producer_exit, node])
        consumer_exit.map = producer.map
        producer.map.label = label
        self.computations[id(producer.map)] += self.computations.pop(id(consumer.map))
        self.exits[id(producer.map)] = consumer_exit
        before, after = self.inside.pop(id(producer.map), []), self.inside.pop(id(consumer.map), [])
        self.inside[id(producer.map)] = [*before, node.data, *after]
        del sdfg.arrays[node.data]


def _value(name: str) -> dace.Memlet:
    return dace.Memlet(data=name, subset=Range([(0, 0, 1)]))


def _reads(state: dace.SDFGState, entry: nodes.MapEntry, connector: str) -> list[Any]:
    """Edges inside a map that carry what enters at `connector`."""
    inside = connector.replace("IN_", "OUT_", 1)
    return [e for e in state.out_edges(entry) if e.src_conn == inside]


def _move_inputs(
    state: dace.SDFGState, consumer: nodes.MapEntry, producer: nodes.MapEntry, *, except_for: str
) -> None:
    """What enters through `consumer` enters through `producer`."""
    for edge in state.in_edges(consumer):
        if edge.dst_conn == except_for:
            continue
        inner = _reads(state, consumer, edge.dst_conn)
        known = [e for e in state.in_edges(producer) if e.src is edge.src and e.data.data == edge.data.data]
        if known:
            port = known[0].dst_conn.removeprefix("IN_")
            if known[0].data.subset != edge.data.subset:
                desc = state.sdfg.arrays[edge.data.data]
                known[0].data = dace.Memlet.from_array(edge.data.data, desc)
        else:
            port = producer.next_connector(edge.dst_conn.removeprefix("IN_"))
            if f"IN_{port}" in producer.in_connectors:
                port = f"{port}_{len(producer.in_connectors)}"
            producer.add_in_connector(f"IN_{port}")
            producer.add_out_connector(f"OUT_{port}")
            state.add_edge(edge.src, edge.src_conn, producer, f"IN_{port}", edge.data)
        for read in inner:
            state.add_edge(producer, f"OUT_{port}", read.dst, read.dst_conn, read.data)
    for edge in state.out_edges(consumer):
        if edge.data.is_empty():  # what reads nothing else hangs on an empty edge
            state.add_edge(producer, None, edge.dst, None, dace.Memlet())
