"""An optimizer's step in a network that has the gradients: parameters and state are written where they are.

All parameters of one rule and element type are one call over lists of tensors (`daceml.sdfg.tensor_lists`).
It comes after everything else, so that nothing reads a parameter that has changed, and whatever can fail has
failed before. Tensors whose elements lie in another order than the parameter's are brought into its order
before, and back behind.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import dace
from dace.data import View
from dace.sdfg import nodes
from dace.sdfg.utils import get_view_edge

from daceml.autodiff.optimizers.optimizer_rules import RULES
from daceml.autodiff.optimizers.optimizer_updates import update_kernel
from daceml.sdfg.builder import Builder
from daceml.sdfg.network import Network
from daceml.sdfg.sizes import product, row_major, size
from daceml.sdfg.tensor_lists import ListCall, Row, add_list_call

Strides = tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Updated:
    """A parameter that is updated.

    Attributes:
        array: of the parameter, one of the network's weights.
        gradient: array with its gradient.
        rule: key in `RULES`.
        row: of the table of numbers.
        state: name -> state_dict key of the tensor that it is bound to, and its strides.
        maximize: go along the gradient instead of against it.
    """

    array: str
    gradient: str
    rule: str
    row: int
    state: Mapping[str, tuple[str, Strides]]
    maximize: bool = False


def add_updates(network: Network, updated: Sequence[Updated], *, rows: int, width: int) -> str:
    """Let an optimised network update its parameters. Mutates it.

    Args:
        rows, width: of the table of numbers.
    Returns:
        array of the numbers: [rows, columns] float64, a new input; each row has its rule's numbers first.
    """
    numbers, _ = network.sdfg.add_array("numbers", [rows, width], dace.float64, find_new_name=True)
    network.inputs = (*network.inputs, numbers)
    kinds: dict[Any, list[Updated]] = {}
    for change in updated:
        desc, gradient = (network.sdfg.arrays[a] for a in (change.array, change.gradient))
        kinds.setdefault((change.rule, change.maximize, desc.dtype, gradient.dtype), []).append(change)
    step = _Step(network)
    calls: list[ListCall] = []
    for (rule, maximize, dtype, gradient_dtype), changes in kinds.items():
        kernel, columns, written = update_kernel(
            rule, maximize=maximize, dtype=dtype, gradient_dtype=gradient_dtype, width=width
        )
        listed = tuple(step.row(change) for change in changes)
        calls.append(ListCall(kernel=kernel, columns=columns, rows=listed, numbers=numbers, written=written))
    step.finish(calls)
    return numbers


class _Step:
    """The arrays of the rows, and what brings them into one order."""

    def __init__(self, network: Network) -> None:
        self.network, self.sdfg, self.state = network, network.sdfg, network.state
        self.builder = Builder(network.sdfg, network.state)
        self.back: dict[str, str] = {}

    def row(self, change: Updated) -> Row:
        """The arrays of a parameter, all in one order."""
        desc = self.sdfg.arrays[change.array]
        shape = tuple(int(n) for n in desc.shape)
        written = [change.array]
        for name in RULES[change.rule].state:
            key, strides = change.state[name]
            held, _ = self.sdfg.add_array(
                f"{change.array}_{name}", shape, desc.dtype, strides=strides, find_new_name=True
            )
            self.network.weights[held] = key
            if change.array in self.network.scalars:
                self.network.scalars |= {held}
            written.append(held)
        orders = {self._order(a) for a in written}
        usual = tuple(int(s) for s in row_major(shape))  # pyright: ignore[reportArgumentType]
        order = orders.pop() if len(orders) == 1 else usual
        order = order if _dense(shape, order) else usual
        self.network.mutations |= {array: array for array in written}
        parameter, *state = (self._ordered(a, order, back=True) for a in written)
        gradient = self._ordered(change.gradient, order, back=False)
        elements = int(product(shape))  # pyright: ignore[reportArgumentType]
        return Row(arrays=(parameter, gradient, *state), elements=elements, number=change.row)

    def finish(self, calls: Sequence[ListCall]) -> None:
        """Add the calls, and what brings back tensors that were brought into another order."""
        access = dict(self.builder.access)
        after: dict[str, nodes.AccessNode] = {}
        for call in calls:
            after |= add_list_call(self.state, "update parameters", call, access)
        behind = Builder(self.sdfg, self.state, {a: n for a, n in after.items() if a in self.back})
        for ordered, array in self.back.items():
            self._copy(behind, ordered, array)

    def _order(self, array: str) -> Strides:
        return tuple(int(s) for s in self.sdfg.arrays[array].strides)

    def _ordered(self, array: str, order: Strides, *, back: bool) -> str:
        """An array in an order, which is itself where it is in that order.

        A gradient that is a weight itself, as in the derivative of a product by hand, is copied as well:
        weights change under the update.
        """
        desc = self.sdfg.arrays[array]
        shape = tuple(int(n) for n in desc.shape)
        owned = back or self._root(array) not in self.network.weights
        if owned and _equivalent(shape, self._order(array), order):
            return array
        ordered, _ = self.sdfg.add_transient(
            f"{array}_ordered", shape, desc.dtype, strides=order, find_new_name=True
        )
        self._copy(self.builder, array, ordered)
        if back:
            self.back[ordered] = array
        return ordered

    def _copy(self, builder: Builder, source: str, target: str) -> None:
        entry = builder.emit_copy(f"reorder_{source}", source, target)
        if entry is not None:
            entry.map.schedule = dace.ScheduleType.Sequential

    def _root(self, array: str) -> str:
        """The array whose memory a view is."""
        while isinstance(self.sdfg.arrays[array], View):
            node = self.builder.access[array]
            edge = get_view_edge(self.state, node)
            array = edge.src.data if edge.dst is node else edge.dst.data
        return array


def _equivalent(shape: tuple[int, ...], first: Strides, second: Strides) -> bool:
    """Whether two orders are the same where a dimension has more than one element."""
    return 0 in shape or all(n == 1 or a == b for n, a, b in zip(shape, first, second, strict=True))


def _dense(shape: tuple[int, ...], strides: Strides) -> bool:
    """Whether no element of memory is left out or seen twice."""
    expected = 1
    for extent, stride in sorted(zip(shape, strides, strict=True), key=lambda pair: (pair[1], pair[0])):
        if extent != 1 and stride != expected:
            return False
        expected *= size(extent)  # pyright: ignore[reportAssignmentType, reportOperatorIssue]
    return True
