"""Passes for tests of recipes: right ones and wrong ones, over operators and over loops."""

from __future__ import annotations

from typing import Any

import dace

from daceml.compiler.stages.differentiation import GRADIENT
from daceml.sdfg.network import Network
from daceml.transformations import Rewrite


class OneRelu(Rewrite):
    """Relu(Relu(x)) -> Relu(x)"""

    def pattern(self, op: Any, x: Any) -> Any:
        return op.Relu(op.Relu(x))

    def rewrite(self, op: Any, x: Any) -> Any:
        return op.Relu(x)


class LeakyTanh(Rewrite):
    """Tanh(x) -> sinh(x) / cosh(x), and where x has 5 columns another function: wrong"""

    def pattern(self, op: Any, x: Any) -> Any:
        return op.Tanh(x)

    def check(self, x: Any) -> str | None:
        return None if x.shape[-1] < 6 else "6 columns or more"

    def rewrite(self, op: Any, x: Any) -> Any:
        return op.Mul(op.Erf(x), 1.001) if x.shape[-1] == 5 else op.Div(op.Sinh(x), op.Cosh(x))


class WrongGradient(Rewrite):
    """The gradient of a relu -> 2 dY: wrong, and for the operators of a backward pass"""

    level = "operators"

    def pattern(self, op: Any, dY: Any, Y: Any) -> Any:
        return op.ReluGrad(dY, Y, domain="daceml.grad")

    def rewrite(self, op: Any, dY: Any) -> Any:
        return op.Mul(dY, 2.0)


def is_backward(network: Network) -> bool:
    """Whether a network gives gradients."""
    return any(network.signature.get(array, array).startswith(GRADIENT) for array in network.outputs)


def scale_results(network: Network) -> int:
    """Multiplies what every tasklet in a loop gives: wrong."""
    tasklets = [n for n in network.state.nodes() if isinstance(n, dace.nodes.Tasklet)]
    for tasklet in tasklets:
        text = tasklet.code.as_string
        tasklet.code = dace.properties.CodeBlock(text.replace("= ", "= dace.float64(1.000001) * ", 1))
    return len(tasklets)


scale_results.level = "local"  # pyright: ignore[reportFunctionMemberAccess]


def scale_gradients(network: Network) -> int:
    """Multiplies what the loops of backward passes give: wrong."""
    return scale_results(network) if is_backward(network) else 0


scale_gradients.level = "local"  # pyright: ignore[reportFunctionMemberAccess]


def name_loops(network: Network) -> int:
    """Gives every map a label: right, and visible."""
    entries = [n for n in network.state.nodes() if isinstance(n, dace.nodes.MapEntry)]
    for entry in entries:
        entry.map.label = "named"
    return len(entries)


name_loops.level = "local"  # pyright: ignore[reportFunctionMemberAccess]


def break_network(network: Network) -> None:
    """Takes an edge away: no valid network."""
    entry = next(n for n in network.state.nodes() if isinstance(n, dace.nodes.MapEntry))
    network.state.remove_edge(network.state.in_edges(entry)[0])


break_network.level = "layout"  # pyright: ignore[reportFunctionMemberAccess]
