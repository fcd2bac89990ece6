"""What a program cannot have because data decides it: numbers that forward reads from tensors, and sizes.

torch.export passes both on as symbols that no input's shape fixes. Some of them are never needed; so they are
looked for where a later stage could not go on.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from daceml.errors import DacemlError, ExportError, ShapeError
from daceml.frontend.capture.provenance import source_of_node

if TYPE_CHECKING:
    from torch.export import ExportedProgram
    from torch.fx import Node

_READS = frozenset({"aten::item", "aten::_local_scalar_dense"})


def decided_by_data(program: ExportedProgram, error: DacemlError) -> DacemlError:
    """What data decides in a program that a stage could not go on with; the stage's own error if nothing."""
    for module in program.graph_module.modules():
        for node in getattr(getattr(module, "graph", None), "nodes", ()):
            found = _refusal(node)
            if found is not None:
                return found
    return error


def _refusal(node: Node) -> DacemlError | None:
    name = getattr(getattr(node.target, "_schema", None), "name", "")
    if name in _READS:
        return ExportError(
            "forward reads a number from a tensor",
            where=source_of_node(node),
            why="its value depends on data, and so would the program",
            fix="compute with the tensor, without .item(), .tolist(), float() or int();\n"
            "or compile the parts of the model around it",
        )
    for size in _sizes(node.meta.get("val")):
        if _is_open(size):
            return ShapeError(
                "the size of a result depends on data",
                where=source_of_node(node),
                why=f"{name or node.name} gives as many elements as the values say, and a program's sizes "
                "follow from those of its inputs",
                fix="keep the shape, for example torch.where(mask, x, 0).sum() for x[mask].sum();\n"
                "or compile the parts of the model around it",
            )
    return None


def _sizes(value: Any) -> Iterator[Any]:
    for tensor in value if isinstance(value, tuple | list) else (value,):
        yield from getattr(tensor, "shape", ())


def _is_open(size: Any) -> bool:
    from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

    return not isinstance(size, int) and bool(free_unbacked_symbols(size))
