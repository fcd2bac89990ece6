"""A graph that Dynamo has captured, as a module of tensors and constants."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import fx, nn

from daceml.frontend.capture.object_arguments import size_of_number


class DynamoGraph(nn.Module):
    """A Dynamo graph as a function of tensors and constants.

    Dynamo passes sizes beside the tensors that have them, and floats of Python as tensors that the graph
    reads with `.item()`. Sizes are read off the tensors again. Whole numbers that are no sizes, and that
    Dynamo has seen change, become sizes of tensors without elements; all other numbers become constants that
    guard the variant.

    Args:
        graph: parameters and buffers are among its inputs.
    Attributes:
        takes_tensors_only: whether `arguments` returns the inputs as they are.
    """

    def __init__(self, graph: fx.GraphModule) -> None:
        super().__init__()
        self.graph_module = graph
        placeholders = [node for node in graph.graph.nodes if node.op == "placeholder"]
        values = [value_of(node) for node in placeholders]
        self._tensors = [i for i, value in enumerate(values) if isinstance(value, torch.Tensor)]
        self._sizes = _sizes(values)
        self._shapes = [tuple(values[i].shape) for i in self._tensors]
        self._counts = {
            i for i, value in enumerate(values) if isinstance(value, torch.SymInt) and i not in self._sizes
        }
        self._numbers = tuple(i for i in self._tensors if _read_as_number(placeholders[i]))
        _items_as_numbers(graph, [placeholders[i] for i in self._numbers])
        self._passed = [i for i in range(len(values)) if i not in self._sizes]
        self.takes_tensors_only = len(self._tensors) == len(values) and not self._numbers

    def dynamic_shapes(self) -> Any:
        """Which sizes of the tensors that are passed are symbolic, or None."""
        from torch.export import Dim

        shapes = dict(zip(self._tensors, self._shapes, strict=True))
        counts = {0: Dim.AUTO}
        specs = tuple(
            counts
            if i in self._counts
            else {axis: Dim.AUTO for axis, n in enumerate(shapes.get(i, ())) if isinstance(n, torch.SymInt)}
            or None
            for i in self._passed
        )
        return {"inputs": specs} if any(specs) else None

    def arguments(self, inputs: Sequence[Any]) -> tuple[Any, ...]:
        """The inputs without sizes, numbers as numbers, and counts as tensors of this size."""
        return tuple(self._argument(i, inputs[i]) for i in self._passed)

    def _argument(self, position: int, given: Any) -> Any:
        if position in self._numbers:
            return given.item()
        return size_of_number(given) if position in self._counts and given >= 0 else given

    def every_input(self, arguments: Sequence[Any]) -> tuple[Any, ...]:
        """The inputs of the graph, sizes included, of what `arguments` returned."""
        given = dict(zip(self._passed, arguments, strict=True))
        for position in self._counts:
            if isinstance(given[position], torch.Tensor):
                given[position] = given[position].shape[0]
        for position, (owner, axis) in self._sizes.items():
            given[position] = given[owner].shape[axis]
        return tuple(given[i] for i in range(len(given)))

    def forward(self, *inputs: Any) -> Any:
        return self.graph_module(*self.every_input(inputs))


def value_of(node: fx.Node) -> Any:
    """What Dynamo knows of a node's value: a fake tensor, a symbolic size, or a structure of them."""
    return node.meta.get("example_value", node.meta.get("val"))


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
            placeholder.meta["example_value"] = value_of(item)
            item.replace_all_uses_with(placeholder)
            graph.graph.erase_node(item)
    graph.recompile()
    _ = graph.code  # Dynamo's modules generate it at their first call, which would look like a change
