"""`torch.compile(module, backend="daceml")`: one Dynamo graph is one compiled module."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import fx, nn

from daceml.compiler.options import module_options
from daceml.errors import ConfigurationError
from daceml.module.module import view_of
from daceml.module.session import Session


def backend(
    graph: fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> Callable[..., Any]:
    """Compile a graph that Dynamo has captured, and its backward pass where gradients are wanted.

    The graph is differentiated here, as any module. AOTAutograd would differentiate it by torch's formulas
    instead, whose operators (`convolution_backward` and many more) have no counterpart in ONNX.

    Args:
        graph: parameters and buffers are among its inputs.
        example_inputs: fake tensors, and symbolic integers for sizes that change.
        options: `auto_optimize`, as for `daceml.compile`.
    Returns:
        a function of the graph's inputs.
    Raises:
        ConfigurationError: a mode, or an option that a graph cannot have.
    """
    given = dict(options or {})
    if mode is not None or given.keys() - {"auto_optimize"}:
        raise ConfigurationError(
            "the daceml backend of torch.compile has one option, auto_optimize, and no modes",
            why=f"it was given {'mode ' + repr(mode) if mode is not None else ', '.join(given)}",
            fix='write torch.compile(module, backend="daceml"), with dynamic=True where sizes change',
        )
    module_options(given)
    module = _Graph(graph)
    session = Session(module, view_of, dynamic_shapes=module.dynamic_shapes(), **given)
    return functools.partial(_call, module, session)


def _call(module: _Graph, session: Session, *inputs: Any) -> Any:
    return session(module.arguments(inputs), {})


class _Graph(nn.Module):
    """A Dynamo graph as a function of tensors and constants.

    Dynamo passes sizes beside the tensors that have them, and numbers of Python as tensors that the graph
    reads with `.item()`. Sizes are read off the tensors again; numbers become constants that guard the
    variant.
    """

    def __init__(self, graph: fx.GraphModule) -> None:
        super().__init__()
        self.graph_module = graph
        placeholders = [node for node in graph.graph.nodes if node.op == "placeholder"]
        values = [node.meta.get("example_value", node.meta.get("val")) for node in placeholders]
        self._tensors = [i for i, value in enumerate(values) if isinstance(value, torch.Tensor)]
        self._sizes = _sizes(values)
        self._shapes = [tuple(values[i].shape) for i in self._tensors]
        self._numbers = tuple(i for i in self._tensors if _read_as_number(placeholders[i]))
        _items_as_numbers(graph, [placeholders[i] for i in self._numbers])
        self._passed = [i for i in range(len(values)) if i not in self._sizes]

    def dynamic_shapes(self) -> Any:
        """Which sizes of the tensors that are passed are symbolic, or None."""
        from torch.export import Dim

        shapes = dict(zip(self._tensors, self._shapes, strict=True))
        specs = tuple(
            {axis: Dim.AUTO for axis, n in enumerate(shapes.get(i, ())) if isinstance(n, torch.SymInt)}
            or None
            for i in self._passed
        )
        return {"inputs": specs} if any(specs) else None

    def arguments(self, inputs: Sequence[Any]) -> tuple[Any, ...]:
        """The inputs without sizes, and numbers as numbers."""
        return tuple(inputs[i].item() if i in self._numbers else inputs[i] for i in self._passed)

    def forward(self, *inputs: Any) -> Any:
        given = dict(zip(self._passed, inputs, strict=True))
        for position, (owner, axis) in self._sizes.items():
            given[position] = given[owner].shape[axis]
        return self.graph_module(*(given[i] for i in range(len(given))))


def _sizes(values: Sequence[Any]) -> dict[int, tuple[int, int]]:
    """Position of a size among the inputs -> which dimension of which tensor it is."""
    places: dict[str, tuple[int, int]] = {}
    for position, value in enumerate(values):
        for axis, n in enumerate(value.shape if isinstance(value, torch.Tensor) else ()):
            if isinstance(n, torch.SymInt):
                places.setdefault(str(n), (position, axis))
    return {
        i: places[str(v)] for i, v in enumerate(values) if isinstance(v, torch.SymInt) and str(v) in places
    }


def _read_as_number(placeholder: fx.Node) -> bool:
    items = [n for n in placeholder.users if n.op == "call_method" and n.target == "item"]
    return bool(items) and len(items) == len(placeholder.users)


def _items_as_numbers(graph: fx.GraphModule, placeholders: Sequence[fx.Node]) -> None:
    for placeholder in placeholders:
        for item in list(placeholder.users):
            item.replace_all_uses_with(placeholder)
            graph.graph.erase_node(item)
    graph.recompile()
