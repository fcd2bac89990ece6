"""One kernel over lists of arrays: what an optimizer does to every parameter, in one loop over all of them.

Each row of the lists has arrays of as many elements as the row says, in the same order in memory. The kernel
goes through a part of one row; a program runs it over parts of all rows in one parallel loop.
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
from daceml.sdfg.builder import box, new_map, parameters
from daceml.sdfg.outline import Kernel, Outliner
from daceml.sdfg.scalar import DType, Scalar
from daceml.sdfg.tasklet_code import print_results

ELEMENTS = "elements"
"""The symbol of a kernel that stands for the number of elements."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """Arrays that a kernel goes through together.

    Attributes:
        arrays: one for each column.
        elements: how many each has.
        number: row of the table of numbers that belongs to it.
    """

    arrays: tuple[str, ...]
    elements: int
    number: int


@dataclass(frozen=True, kw_only=True)
class ListCall:
    """A kernel and the rows that it goes through.

    Attributes:
        kernel: one symbol, the number of elements.
        columns: for `a00, a01, …` the column of a row, or None for a row of the table of numbers.
        numbers: array of shape [rows, width], float64.
        written: columns that the kernel writes.
    """

    kernel: Kernel
    columns: tuple[int | None, ...]
    rows: tuple[Row, ...]
    numbers: str
    written: tuple[int, ...]

    @property
    def reads(self) -> tuple[str, ...]:
        """All arrays; what is written is read before."""
        return (*(a for row in self.rows for a in row.arrays), self.numbers)

    @property
    def writes(self) -> tuple[str, ...]:
        """Arrays of the columns that are written."""
        return tuple(row.arrays[c] for row in self.rows for c in self.written)

    @property
    def elements(self) -> int:
        """Of all rows."""
        return sum(row.elements for row in self.rows)


def list_kernel(
    columns: Sequence[tuple[str, DType]], numbers: str, width: int, results: Sequence[tuple[str, Scalar]]
) -> tuple[Kernel, tuple[int | None, ...]]:
    """The kernel of values that are computed element by element, and the columns of its arguments.

    Args:
        columns: name and type of each.
        numbers: the name under which the values read numbers.
        width: how many numbers a row of the table has.
        results: column -> its new value at `i0`; every value is computed before any is written.
    """
    sdfg = dace.SDFG("rows")
    state = sdfg.add_state("state")
    sdfg.add_symbol(ELEMENTS, dace.int64)
    elements = dace.symbol(ELEMENTS, dace.int64)
    for name, dtype in columns:
        sdfg.add_array(name, [elements], dtype)
    sdfg.add_array(numbers, [width], dace.float64)
    (i,) = parameters(1)
    entry, exit_ = new_map("rows", [i], [elements], dace.ScheduleType.Sequential)
    state.add_nodes_from([entry, exit_])
    code, outputs = print_results([value for _, value in results])
    tasklet = nodes.Tasklet("row", dict.fromkeys(code.reads), dict.fromkeys(outputs), code.code)
    state.add_node(tasklet)
    for connector, access in code.reads.items():
        if "IN_" + access.array not in entry.in_connectors:
            entry.add_in_connector("IN_" + access.array)
            entry.add_out_connector("OUT_" + access.array)
            whole = Memlet.from_array(access.array, sdfg.arrays[access.array])
            state.add_edge(add_access(state, access.array), None, entry, "IN_" + access.array, whole)
        place = Memlet(data=access.array, subset=box([(at, at) for at in access.indices]))
        state.add_edge(entry, "OUT_" + access.array, tasklet, connector, place)
    for (name, _), output in zip(results, outputs, strict=True):
        exit_.add_in_connector("IN_" + name)
        exit_.add_out_connector("OUT_" + name)
        state.add_edge(tasklet, output, exit_, "IN_" + name, Memlet(data=name, subset=box([(i, i)])))
        whole = Memlet.from_array(name, sdfg.arrays[name])
        state.add_edge(exit_, "OUT_" + name, add_access(state, name), None, whole)
    call = Outliner().outline(sdfg, state, entry)
    places = {name: column for column, (name, _) in enumerate(columns)}
    return call.kernel, tuple(places.get(argument) for argument in call.arguments)


@make_properties
class TensorLists(nodes.LibraryNode):
    """A call over lists of arrays in an SDFG state; every array has a connector, and is written in place."""

    # dace looks these up on every library node; there is nothing to choose
    implementations: ClassVar[dict[str, type]] = {}
    default_implementation: ClassVar[str | None] = None

    def __init__(self, name: str, call: ListCall) -> None:
        super().__init__(name)
        self._call = call  # dace takes every other attribute for a property

    @property
    def call(self) -> ListCall:
        """What the node stands for."""
        return self._call


def add_list_call(
    state: dace.SDFGState, label: str, call: ListCall, access: dict[str, nodes.AccessNode]
) -> dict[str, nodes.AccessNode]:
    """Add the node of a call to a state; it comes after everything that the state has so far.

    Args:
        access: array -> the access node to read it from; grows.
    Returns:
        array -> its access node after the call, for every array that is written.
    """
    node = TensorLists(label, call)
    arrays: Any = state.sdfg.arrays
    ends = [n for n in state.nodes() if not state.out_degree(n) and not isinstance(n, nodes.MapExit)]
    state.add_node(node)
    for number, array in enumerate(dict.fromkeys(call.reads)):
        if array not in access:
            access[array] = add_access(state, array)
        node.add_in_connector(f"_in{number}")
        state.add_edge(access[array], None, node, f"_in{number}", Memlet.from_array(array, arrays[array]))
    for end in ends:
        if not state.edges_between(end, node):
            state.add_edge(end, None, node, None, Memlet())
    after: dict[str, nodes.AccessNode] = {}
    for number, array in enumerate(call.writes):
        after[array] = add_access(state, array)
        node.add_out_connector(f"_out{number}")
        state.add_edge(node, f"_out{number}", after[array], None, Memlet.from_array(array, arrays[array]))
    return after
