"""Removal of what does nothing in a functional graph: copies, dropout in evaluation, assertions.

Mutates the program that it is given.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

import torch

from daceml.frontend.onnx_export.functionalize import rename_outputs

if TYPE_CHECKING:
    from torch.export import ExportedProgram

COPIES = frozenset(
    f"aten.{name}"
    for name in (
        "alias.default",
        "clone.default",
        "contiguous.default",
        "detach.default",
        "lift_fresh_copy.default",
        "lift_fresh.default",
        "resolve_conj.default",
        "resolve_neg.default",
    )
)
"""Give the value of their first argument: without mutation a copy is the tensor itself."""

CASTS = frozenset(
    {
        "aten.to.dtype",
        "aten.to.device",
        "aten.to.dtype_layout",
        "aten.to.other",
        "aten._to_copy.default",
        "aten.type_as.default",
        "prims.convert_element_type.default",
    }
)
"""Copies where the element type stays."""

RESHAPES = frozenset({"aten.view.default", "aten.reshape.default", "aten._unsafe_view.default"})

ASSERTIONS = frozenset(
    {
        "aten._assert_async.default",
        "aten._assert_async.msg",
        "aten._assert_scalar.default",
        "aten._assert_tensor_metadata.default",
        "aten.sym_constrain_range.default",
        "aten.sym_constrain_range_for_size.default",
    }
)


def simplify(program: ExportedProgram) -> None:
    """Remove copies, casts to the same type, idle dropout, assertions and what nobody reads."""
    graph = program.graph
    for node in list(graph.nodes):
        if node.op != "call_function":
            continue
        target = str(node.target)
        if target in ASSERTIONS:
            graph.erase_node(node)
        elif target in CASTS and not _is_tensor(node.args[0]):
            _make_of_number(node)
        elif _is_copy(node, target):
            node.replace_all_uses_with(node.args[0])
            graph.erase_node(node)
        elif node.target is operator.getitem and (whole := _whole_operand(node)) is not None:
            node.replace_all_uses_with(whole)
            graph.erase_node(node)
        elif target in RESHAPES:
            _write_static_sizes(node)
        elif node.target is operator.getitem:
            _type_statistics(node)
    graph.eliminate_dead_code()
    rename_outputs(program)


def _is_tensor(operand: Any) -> bool:
    return isinstance(operand, torch.fx.Node) and isinstance(operand.meta.get("val"), torch.Tensor)


def _make_of_number(node: torch.fx.Node) -> None:
    """_to_copy(2, dtype=float32) -> scalar_tensor(2, dtype=float32): torch.vmap casts numbers."""
    node.target = torch.ops.aten.scalar_tensor.default
    node.args, node.kwargs = node.args[:1], {"dtype": _dtype(node)}


def _is_copy(node: torch.fx.Node, target: str) -> bool:
    if target in COPIES:
        return True
    if target in CASTS:
        return _dtype(node) == _dtype(node.args[0])
    if target in ("aten.dropout.default", "aten.feature_dropout.default", "aten.alpha_dropout.default"):
        p, train = node.args[1:3]
        return not train or bool(p == 0)
    return False


def _type_statistics(node: torch.fx.Node) -> None:
    """Running statistics keep their type; a second trace gives them that of the normalised tensor."""
    source, position = node.args
    if str(source.target) == "aten._native_batch_norm_legit_functional.default" and position in (3, 4):  # pyright: ignore[reportOptionalMemberAccess, reportAttributeAccessIssue]
        statistic: Any = source.args[position]  # pyright: ignore
        node.meta["val"] = statistic.meta["val"]


def _whole_operand(node: torch.fx.Node) -> torch.fx.Node | None:
    """The operand of a broadcast that has the common shape already."""
    source, position = node.args
    if str(source.target) != "aten.broadcast_tensors.default":  # pyright: ignore[reportOptionalMemberAccess, reportAttributeAccessIssue]
        return None
    operand: Any = source.args[0][position]  # pyright: ignore
    return operand if operand.meta["val"].shape == node.meta["val"].shape else None


def _dtype(node: Any) -> Any:
    return node.meta["val"].dtype


def _write_static_sizes(node: torch.fx.Node) -> None:
    """view(x, [2, -1, sym]) -> reshape(x, [2, 8, sym]): what the trace knows is written down.

    A view may have stood behind a copy into other strides, which is gone; a reshape takes any.
    """
    node.target = torch.ops.aten.reshape.default
    result = node.meta["val"].shape
    given: Any = node.args[1]
    if len(given) == len(result):
        sizes = [known if isinstance(known, int) else size for known, size in zip(result, given, strict=True)]
        node.update_arg(1, sizes)
