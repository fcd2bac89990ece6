"""Limits of magnitudes under which a program overflows nowhere, so that no NaN arises in it.

oneDNN's relu and clip turn NaN into a number. NaN comes from outside, or from infinities, and these from
outside or from an overflow. With g the largest sum of |w| of a channel and b the largest |bias|, a
convolution gives |y| <= g |x| + b; so where x is known to be below a limit, nothing overflows for some
convolutions to come. The limit is computed of the weights when the program is bound
(`runtime/weight_preparation.py`), one for all checks. Arrays that no convolution writes are checked, and one
more after every few convolutions without one of bounded range between them: a check reads an array that was
just written. A program that finds an element beyond the limit gives up, and one without such kernels runs
instead.
"""

from __future__ import annotations

import math

import dace
from dace.sdfg.utils import dfs_topological_sort

from daceml.onnx_ops.aten.packed import CONVOLUTION, DEPTHWISE, POINTWISE
from daceml.onnx_ops.external import draws_in_order
from daceml.onnx_ops.schema.node import ONNXNode
from daceml.sdfg.network import LimitCheck, Network, Preparation

# Convolutions between two checks. Of trained networks, sums of |w| are some tens, at most some hundreds: with
# 8 the limit stays above 1e12.
_MOST_CONVOLUTIONS = 8
SWALLOWING = ("relu", "clip")
_KERNELS = tuple(f"aten:{name}" for name in (CONVOLUTION, DEPTHWISE, POINTWISE))


def no_second_run(network: Network) -> str | None:
    """Why a program may not give up and leave the call to another one."""
    if network.mutations:
        return "the network changes buffers, so it cannot be run again"
    if draws_in_order(network):
        return "the network draws random numbers, so it cannot be run again"
    return None


def limit_magnitudes(network: Network) -> int:
    """Check what convolutions that turn NaN into numbers rely on. Mutates the network.

    Returns:
        how many arrays are checked.
    """
    return _Limits(network).add()


class _Limits:
    def __init__(self, network: Network) -> None:
        self.network, self.state = network, network.state
        self.makers: dict[str, ONNXNode] = {}
        for node in dfs_topological_sort(network.state):
            if (
                isinstance(node, ONNXNode)
                and node.implementation in _KERNELS
                and bias_is_known(node, network)
            ):
                self.makers[_operand(node, "Y", network)] = node
        self.rows: list[tuple[int, ...]] = []
        self.bounds: list[float] = []
        self.sources: list[str] = []
        self.places: dict[str, int] = {}  # array -> the last row that is about it
        self.depths: dict[str, int] = {}
        self.checked: list[str] = []

    def add(self) -> int:
        guarded = [a for a, node in self.makers.items() if swallows_nan(node)]
        if not guarded:
            return 0
        wanted = self._wanted(guarded)
        for array, node in self.makers.items():
            if array in wanted:
                self._convolution(array, node)
        made = Preparation(
            function="limit",
            sources=tuple(self.sources),
            numbers=tuple(self.rows),
            reals=tuple(self.bounds),
            packed=False,
        )
        limit = self.network.prepare(made, "limit", dace.data.Array(dace.float32, (1,)))
        self.network.limits += [LimitCheck(array=array, limit=limit) for array in self.checked]
        return len(self.checked)

    def _wanted(self, guarded: list[str]) -> set[str]:
        """What guarded convolutions give, and what other convolutions give them, directly or not."""
        waiting, wanted = list(guarded), set[str]()
        while waiting:
            array = waiting.pop()
            if array in self.makers and array not in wanted:
                wanted.add(array)
                waiting += self._operands(self.makers[array])
        return wanted

    def _operands(self, node: ONNXNode) -> tuple[str, ...]:
        return tuple(filter(None, (_operand(node, name, self.network) for name in "XZ")))

    def _convolution(self, array: str, node: ONNXNode) -> None:
        """The row of what a convolution gives, behind those of its operands."""
        operands = self._operands(node)
        for operand in operands:
            if operand not in self.places:
                self._check(operand)
        weight = self.network.prepared[_operand(node, "W", self.network)].sources[0]
        places = [self.places[operand] for operand in operands]
        row = (1, len(self.sources), places[0], places[1] if len(places) > 1 else -1)
        self.sources += [weight, _operand(node, "B", self.network)]
        values = node.attribute_values()
        bound = max(abs(values["low"]), abs(values["high"])) if _activation(node) == "clip" else math.inf
        depth = 0 if math.isfinite(bound) else 1 + max(self.depths[operand] for operand in operands)
        self._add(array, row, bound, depth)
        if depth >= _MOST_CONVOLUTIONS:
            self._check(array)

    def _check(self, array: str) -> None:
        self.checked.append(array)
        self._add(array, (0,), math.inf, 0)

    def _add(self, array: str, row: tuple[int, ...], bound: float, depth: int) -> None:
        self.places[array], self.depths[array] = len(self.rows), depth
        self.rows.append(row)
        self.bounds.append(bound)


def swallows_nan(node: ONNXNode) -> bool:
    """Whether a convolution turns NaN into a number; loops of our own keep it."""
    return node.implementation == f"aten:{CONVOLUTION}" and _activation(node) in SWALLOWING


def bias_is_known(node: ONNXNode, network: Network) -> bool:
    """Whether the bias of a convolution is there when a program is bound."""
    bias = _operand(node, "B", network)
    return not bias or bias in network.weights or bias in network.prepared


def _operand(node: ONNXNode, connector: str, network: Network) -> str:
    """The array at a connector; "" where there is none."""
    edges = [*network.state.in_edges(node), *network.state.out_edges(node)]
    return next((str(e.data.data) for e in edges if connector in (e.dst_conn, e.src_conn)), "")


def _activation(node: ONNXNode) -> str:
    return str(node.attribute_values().get("activation", "none"))
