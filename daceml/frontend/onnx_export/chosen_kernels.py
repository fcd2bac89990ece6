"""Nodes of a trace that torch's own kernels run by choice: data on an exported program.

A node is named as in the functional form of its trace, in which no operator is decomposed yet.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

import torch

from daceml.frontend.onnx_export.functionalize import copied, functionalize
from daceml.frontend.onnx_export.torch_fallback import call_by_name, refusal
from daceml.runtime.torch_fallback import draws_numbers, may_give_views

if TYPE_CHECKING:
    import onnx_ir as ir
    from torch.export import ExportedProgram
    from torch.fx import Node

_CHOSEN = "daceml.torch_kernels"
_NAME = "daceml.node"


def with_torch_kernels(program: ExportedProgram, names: Collection[str]) -> ExportedProgram:
    """A copy of a program in which torch's kernels run the nodes of these names."""
    twin = copied(program)
    twin.graph_module.meta[_CHOSEN] = tuple(sorted(names))
    return twin


def torch_kernels(program: ExportedProgram) -> tuple[str, ...]:
    """Names of the nodes that torch's kernels run by choice, sorted."""
    return program.graph_module.meta.get(_CHOSEN, ())


def functional_form(program: ExportedProgram) -> ExportedProgram:
    """`functionalize`, with calls of torch's kernels where they were chosen; nodes keep their names in mind.

    Raises:
        ExportError, RunsEagerlyError: see `functionalize`.
    """
    functional = functionalize(program)
    for node in functional.graph.nodes:
        # torch's passes keep this entry where they make other nodes of one
        node.meta["custom"] = {**node.meta.get("custom", {}), _NAME: node.name}
    names = torch_kernels(program)
    if names:
        call_by_name(functional, [n for n in functional.graph.nodes if n.name in names and may_choose(n)])
    return functional


def may_choose(node: Node) -> bool:
    """Whether a node of a functional form may be a call of torch's kernel.

    It gives tensors; views stay views, and random numbers are drawn in the order of the trace.
    """
    if node.op != "call_function" or refusal(node) is not None:
        return False
    if draws_numbers(node.target, node.args, node.kwargs):
        return False
    own = _memories(node)
    is_view = may_give_views(node.target) and any(own & _memories(x) for x in node.all_input_nodes)
    return bool(own) and not is_view


def _memories(node: Node) -> set[int]:
    value = node.meta.get("val")
    tensors = value if isinstance(value, list | tuple) else [value]
    return {x.untyped_storage()._cdata for x in tensors if isinstance(x, torch.Tensor)}  # pyright: ignore[reportPrivateUsage]


def traced_names(model: ir.Model) -> dict[str, str]:
    """Names of a model's nodes -> the nodes of the functional form that they come from, where known."""
    found: dict[str, str] = {}
    for node in model.graph:
        traced = node.meta.get("node")
        name = None if traced is None else traced.meta.get("custom", {}).get(_NAME)
        if name is not None and node.name:
            found[node.name] = name
    return found
