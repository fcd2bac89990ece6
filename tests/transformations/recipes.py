"""A network, and steps of recipes for it: a rewrite, and passes that count."""

from __future__ import annotations

from typing import Any

import dace

from daceml.onnx_ops.schema.node import ONNXNode
from daceml.sdfg.network import Network
from daceml.transformations.rewriting.rewrite import Rewrite

CHAIN = "g (float[4] X) => (float[4] Y) { A = Neg (X) B = Relu (A) C = Relu (B) Y = Neg (C) }"


class OneRelu(Rewrite):
    """Relu(Relu(x)) -> Relu(x)"""

    def __init__(self, most: int = 10) -> None:
        self.most = most

    def pattern(self, op: Any, x: Any) -> Any:
        return op.Relu(op.Relu(x))

    def check(self, x: Any) -> str | None:
        return None if x.shape[0] <= self.most else f"more than {self.most} elements"

    def rewrite(self, op: Any, x: Any) -> Any:
        return op.Relu(x)


def count_operators(network: Network, kind: str = "") -> int:
    """How many there are."""
    return sum(kind in ("", n.op_type) for n in network.state.nodes() if isinstance(n, ONNXNode))


def count_loops(network: Network) -> int:
    """How many maps there are."""
    return sum(isinstance(n, dace.nodes.MapEntry) for n in network.state.nodes())


count_loops.level = "local"  # pyright: ignore[reportFunctionMemberAccess]
