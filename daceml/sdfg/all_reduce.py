"""Two library nodes for one all-reduce: one begins it, one waits, and steps in between overlap with it.

An all-reduce averages a bucket of gradients over all ranks. Which ranks there are, and how they talk to each
other, a program does not know: whoever binds it says how its all-reduces are run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import dace
from dace.memlet import Memlet
from dace.properties import make_properties
from dace.sdfg import nodes

from daceml.sdfg.access import add_access


@dataclass(frozen=True, kw_only=True)
class BeginAllReduce:
    """Takes gradients over and begins to average them; does not wait.

    Attributes:
        bucket: which of the buckets of a module they are.
        gradients: dense arrays of one element type, in the order of the bucket; may be none, since other
            ranks may have some.
        ticket: array of one int64 that leads from one half to the other; a program keeps the number by which
            the all-reduce under way is known outside of it, in the processor's memory.
    """

    bucket: int
    gradients: tuple[str, ...]
    ticket: str

    @property
    def reads(self) -> tuple[str, ...]:
        """The gradients."""
        return self.gradients

    @property
    def writes(self) -> tuple[str, ...]:
        """The ticket."""
        return (self.ticket,)


@dataclass(frozen=True, kw_only=True)
class WaitAllReduce:
    """Waits for an all-reduce and gives what it has averaged.

    Attributes:
        averaged: arrays like the gradients that were given, in their order.
    """

    bucket: int
    ticket: str
    averaged: tuple[str, ...]

    @property
    def reads(self) -> tuple[str, ...]:
        """The ticket."""
        return (self.ticket,)

    @property
    def writes(self) -> tuple[str, ...]:
        """What was averaged."""
        return self.averaged


@make_properties
class AllReduce(nodes.LibraryNode):
    """Either half of an all-reduce in an SDFG state."""

    # dace looks these up on every library node; who binds a program chooses, not who compiles it
    implementations: ClassVar[dict[str, type]] = {}
    default_implementation: ClassVar[str | None] = None

    def __init__(self, name: str, half: BeginAllReduce | WaitAllReduce) -> None:
        super().__init__(name)
        self._half = half  # dace takes every other attribute for a property

    @property
    def half(self) -> BeginAllReduce | WaitAllReduce:
        """What the node stands for."""
        return self._half


def add_all_reduce(
    state: dace.SDFGState, bucket: int, gradients: Sequence[nodes.AccessNode]
) -> tuple[AllReduce, tuple[str, ...]]:
    """Add both halves of an all-reduce to a state.

    Args:
        gradients: access nodes in which they are complete.
    Returns:
        the node that begins, and arrays with the averages: transient, each with the layout of its gradient.
    """
    sdfg: Any = state.sdfg
    ticket, _ = sdfg.add_transient(f"ticket_{bucket}", [1], dace.int64, find_new_name=True)
    averaged: list[str] = []
    for node in gradients:
        desc = sdfg.arrays[node.data]
        name, _ = sdfg.add_transient(
            f"{node.data}_averaged", desc.shape, desc.dtype, strides=desc.strides, find_new_name=True
        )
        averaged.append(name)
    names = tuple(node.data for node in gradients)
    begin = AllReduce(
        f"begin all-reduce {bucket}", BeginAllReduce(bucket=bucket, gradients=names, ticket=ticket)
    )
    wait = AllReduce(
        f"wait for all-reduce {bucket}",
        WaitAllReduce(bucket=bucket, ticket=ticket, averaged=tuple(averaged)),
    )
    state.add_nodes_from([begin, wait])
    for number, node in enumerate(gradients):
        _connect(state, node, begin, f"_in{number}", node.data)
    held = add_access(state, ticket)
    begin.add_out_connector("_out0")
    state.add_edge(begin, "_out0", held, None, Memlet.from_array(ticket, sdfg.arrays[ticket]))
    _connect(state, held, wait, "_in0", ticket)
    for number, name in enumerate(averaged):
        wait.add_out_connector(f"_out{number}")
        memlet = Memlet.from_array(name, sdfg.arrays[name])
        state.add_edge(wait, f"_out{number}", add_access(state, name), None, memlet)
    return begin, tuple(averaged)


def _connect(
    state: dace.SDFGState, source: nodes.AccessNode, target: AllReduce, connector: str, array: str
) -> None:
    target.add_in_connector(connector)
    state.add_edge(source, None, target, connector, Memlet.from_array(array, state.sdfg.arrays[array]))
