"""Steps of the forward pass that run again in the backward pass: copies that write arrays of their own."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import dace
from dace.data import Array, View
from dace.sdfg import nodes

from daceml.autodiff.activity import viewed
from daceml.autodiff.checkpointing.checkpoint_costs import Choices
from daceml.autodiff.checkpointing.integer_program import Storage
from daceml.sdfg.access import add_access
from daceml.sdfg.builder import Builder
from daceml.sdfg.scopes import scope_nodes

_MOST_PRIVATE = 4
"""Copies of a step in one stage that one reader has to itself each. In a recurrence every step reads the one
before more than once, so copies of copies would grow exponentially; readers beyond these share one copy."""


def recompute_in_backward(choices: Choices, choice: Storage) -> None:
    """Let the backward half read copies of what steps of the forward half write. Mutates the network.

    An elementwise step is copied for each reader that fusion can join it with, as fusion takes in what has
    one reader, up to `_MOST_PRIVATE` times; for all others there is one copy in each stage.
    """
    _Cloning(choices, choice).run()


class _Cloning:
    def __init__(self, choices: Choices, choice: Storage) -> None:
        self.choices, self.choice, self.facts = choices, choice, choices.facts
        self.network, self.state, self.sdfg = self.facts.network, self.facts.state, self.facts.network.sdfg
        self.roots = self.facts.roots
        self.shared: dict[tuple[nodes.Node, int], dict[str, str]] = {}
        self.views: dict[tuple[str, str], str] = {}
        self.access: dict[str, nodes.AccessNode] = {}
        self.copies: dict[str, str] = {}
        self.private: Counter[tuple[nodes.Node, int]] = Counter()
        self.waiting: list[tuple[nodes.Node, nodes.Node, int]] = []

    def run(self) -> None:
        for reader in (*self.choices.behind, *self.choice.again):
            for array in self.facts.read_by(reader):
                self.facts.fusing_readers(array, [reader])  # as long as nothing has changed
        for reader in self.choices.behind:
            self.waiting.append((reader, reader, self.choices.stages[reader]))
            while self.waiting:
                self._serve(*self.waiting.pop())
        dangling = [n for n in self.state.data_nodes() if self.state.degree(n) == 0]
        self.state.remove_nodes_from(dangling)

    def _serve(self, reader: nodes.Node, original: nodes.Node, stage: int) -> None:
        """Point a step that runs in the backward half at the copies of what it reads.

        Args:
            original: the step whose facts are the reader's: itself, or what it is a copy of.
            stage: in which the reader runs.
        """
        for array in self.facts.read_by(original):
            producer = self.facts.producers.get(array)
            if producer is None or self.choices.at_hand(array) or array in self.choice.stored:
                continue
            runs = [t for t in self.choice.again.get(producer, ()) if t <= stage]
            if not runs:
                continue
            fusing = self.facts.step(producer).elementwise and self.facts.fusing_readers(array, [original])
            made = self._private(producer, runs[-1]) if fusing else self._shared(producer, runs[-1])
            self._point(reader, array, made[array])

    def _private(self, producer: nodes.Node, stage: int) -> dict[str, str]:
        self.private[producer, stage] += 1
        if self.private[producer, stage] > _MOST_PRIVATE:
            return self._shared(producer, stage)
        return self._clone(producer, stage)

    def _shared(self, producer: nodes.Node, stage: int) -> dict[str, str]:
        if (producer, stage) not in self.shared:
            self.shared[producer, stage] = self._clone(producer, stage)
        return self.shared[producer, stage]

    def _clone(self, step: nodes.Node, stage: int) -> dict[str, str]:
        """A copy of a step, which waits for what it reads; what the step writes -> what the copy writes."""
        state, written = self.state, self.facts.step(step).writes
        copied = {array: self._copy(array) for array in self.choices.copied(self.facts.step(step))}
        inside = scope_nodes(state, step) if isinstance(step, nodes.MapEntry) else [step]
        local = {n.data for n in inside if isinstance(n, nodes.AccessNode)}
        names = {array: self._array(array) for array in dict.fromkeys((*written, *local))}
        copies = {node: self._copied(node, names) for node in inside}
        maps = {node.map: copies[node].map for node in inside if isinstance(node, nodes.MapEntry)}
        for node in inside:
            if isinstance(node, nodes.MapExit):
                copies[node].map = maps[node.map]
        state.add_nodes_from(list(copies.values()))
        for node in inside:
            for edge in (*state.in_edges(node), *state.out_edges(node)):
                if edge.dst is node and edge.src in copies:
                    continue  # seen from its other end
                target: Any = copies.get(edge.dst) or self._node(names[str(edge.dst.data)])
                source: Any = copies.get(edge.src, edge.src)
                if edge.src not in copies and edge.data.data in copied:
                    source = self._node(copied[edge.data.data])
                memlet = _renamed(edge.data, {**names, **copied})
                state.add_edge(source, edge.src_conn, target, edge.dst_conn, memlet)
        self.waiting.append((copies[step], step, stage))
        return {array: names[array] for array in written}

    def _copy(self, array: str) -> str:
        """What the forward pass keeps of an array of the caller's."""
        if array not in self.copies:
            name = self.copies[array] = self._array(array)
            self._builder.emit_copy(f"copy_{array}", array, name)
            self.access[name] = self._builder.node_of(name)
            self.network.saved |= {name}
        return self.copies[array]

    @cached_property
    def _builder(self) -> Builder:
        return Builder(self.sdfg, self.state)

    def _copied(self, node: nodes.Node, names: Mapping[str, str]) -> Any:
        fresh = copy.deepcopy(node)
        if isinstance(fresh, nodes.AccessNode):
            fresh.data = names[fresh.data]
        return fresh

    def _array(self, like: str) -> str:
        desc = copy.deepcopy(self.sdfg.arrays[like])
        desc.transient = True
        if isinstance(desc, Array) and not isinstance(desc, View):
            desc.set_shape(desc.shape)  # the caller's strides are those of the caller's memory alone
        name = self.sdfg.add_datadesc(f"{like}_again", desc, find_new_name=True)
        if like in self.network.scalars:
            self.network.scalars |= {name}
        if like in self.network.origins:
            self.network.origins[name] = self.network.origins[like]
        return name

    def _point(self, reader: nodes.Node, array: str, fresh: str) -> None:
        """Let one step read another array in the place of `array` and of its views."""
        state = self.state
        for edge in list(state.in_edges(reader)):
            held = edge.data.data
            if held is None or self.roots.get(held, held) != array:
                continue
            name = self._view(edge.src, fresh) if held != array else fresh
            source = self._node(name)
            memlet = _renamed(edge.data, {held: name})
            state.remove_edge(edge)
            state.add_edge(source, edge.src_conn, reader, edge.dst_conn, memlet)
            if isinstance(reader, nodes.MapEntry):
                for node in scope_nodes(state, reader):
                    for inner in state.out_edges(node):
                        if inner.data.data == held:
                            inner.data = _renamed(inner.data, {held: name})

    def _view(self, node: nodes.AccessNode, fresh: str) -> str:
        """The view that a node is, of another array."""
        if not isinstance(self.sdfg.arrays[node.data], View):
            return fresh
        if (node.data, fresh) not in self.views:
            (viewing,) = [e for e in self.state.in_edges(node) if e.dst_conn == "views"]
            source = self._view(viewing.src, fresh)
            name = self._array(node.data)
            made = self._node(name)
            made.add_in_connector("views", force=True)
            memlet = _renamed(viewing.data, {viewed(self.state, node): source})
            self.state.add_edge(self._node(source), None, made, "views", memlet)
            self.views[node.data, fresh] = name
        return self.views[node.data, fresh]

    def _node(self, array: str) -> nodes.AccessNode:
        if array not in self.access:
            self.access[array] = add_access(self.state, array)
        return self.access[array]


def _renamed(memlet: dace.Memlet, names: Mapping[str, str]) -> dace.Memlet:
    fresh = copy.deepcopy(memlet)
    if fresh.data is not None and fresh.data in names:
        fresh.data = names[fresh.data]
    return fresh
