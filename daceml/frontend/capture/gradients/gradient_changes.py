"""Changes in place that autograd would follow: a program writes values back, and no gradient goes that way.

Running statistics and averages under `no_grad` are written back. A state that gradients flow through from one
call to the next, or a parameter that forward overwrites, is left to torch. So are gradients that are to be
sparse tensors, which no program gives.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

import torch

from daceml.errors import ExportError
from daceml.frontend.capture.exportable import RunsEagerlyError
from daceml.frontend.capture.gradients.gradient_stops import (
    changed,
    changed_by,
    operands_read,
    regions,
    stop_gradient,
    storage,
    switches_off,
)
from daceml.frontend.capture.provenance import source_of_node
from daceml.runtime.records.gradients import Wanted

if TYPE_CHECKING:
    from torch.export import ExportedProgram
    from torch.fx import GraphModule, Node

_SPARSE = frozenset({"sparse", "sparse_grad"})
"""Arguments of ATen's embeddings and of its gather."""


def refuse_changes(program: ExportedProgram, wanted: Wanted) -> None:
    """Refuse what autograd would make part of its graph beyond the results of the call.

    Args:
        program: with its gradient stops marked.
    Raises:
        RunsEagerlyError: forward changes a tensor that requires a gradient, or gives one of the caller's or
            the module's tensors a value that does; or it asks for a sparse gradient.
        ExportError: gradients flow into graphs of which data chooses one.
    """
    signature = program.graph_signature
    keys = {**signature.inputs_to_parameters, **signature.inputs_to_buffers}
    inputs = iter(wanted.inputs)
    flowing: list[bool] = []
    for node in program.graph.nodes:
        if node.op == "placeholder":
            if node.name in keys:
                value = node.meta.get("val")
                flowing.append(
                    keys[node.name] in wanted.state or bool(getattr(value, "requires_grad", False))
                )
            elif isinstance(node.meta.get("val"), torch.Tensor):
                lifted = node.name in signature.inputs_to_lifted_tensor_constants
                flowing.append(not lifted and next(inputs))
            else:
                flowing.append(False)
    _Walk(program.graph_module, flowing).run()


class _Walk:
    """One graph: which of its values gradients flow through, in the order of execution."""

    def __init__(self, module: GraphModule, flowing: list[bool]) -> None:
        self.module = module
        self.memory: dict[int, Node] = {}
        self.flowing: set[int | None] = set()
        placeholders = [node for node in module.graph.nodes if node.op == "placeholder"]
        self.flows = dict(zip(placeholders, flowing, strict=True))
        for node in placeholders:
            if (place := storage(node)) is not None:
                self.memory.setdefault(place, node)

    def run(self) -> bool:
        """Whether gradients flow into a result."""
        for node in self.module.graph.nodes:
            if node.op == "call_function":
                self.flows[node] = self._visit(node)
        (returned,) = self.module.graph.output_node().args
        found: list[bool] = []
        torch.fx.map_arg(returned, lambda node: found.append(self._flows(node)))
        return any(found)

    def _visit(self, node: Node) -> bool:
        if node.target is stop_gradient():
            return False
        for region in regions(self.module, node):
            if not str(node.target).startswith("wrap_with_"):
                raise ExportError(
                    f"gradients of {node.target} are not derived",
                    where=source_of_node(node),
                    why="data chooses which of its graphs runs, and how often",
                    fix="write it with torch.where, or an unrolled loop; or leave fullgraph=True out",
                )
            if switches_off(node):
                self._refuse_unfollowed(node, region)
                return False
            operands = [a for a in node.args if isinstance(a, torch.fx.Node) and a.op != "get_attr"]
            return _Walk(region, [self._flows(a) for a in operands]).run()
        flows = any(self._flows(operand) for operand in operands_read(node))
        if flows and (asked := _sparse_gradient(node)):
            raise RunsEagerlyError(f"forward asks for a sparse gradient: {asked}")
        for target in changed_by(node):
            owner = self.memory.get(storage(target) or 0, target)
            if owner.op != "placeholder":
                self.flowing |= {storage(target)} if flows else set()
                continue
            if self.flows[owner]:
                raise RunsEagerlyError(f"forward changes {owner.name} in place, which requires a gradient")
            if flows:
                raise RunsEagerlyError(f"forward keeps a value that requires a gradient in {owner.name}")
        value = node.meta.get("val")
        whole = value if isinstance(value, torch.Tensor) else None
        return flows and (node.target is operator.getitem or whole is None or whole.is_floating_point())

    def _flows(self, node: Node) -> bool:
        return self.flows.get(node, False) or storage(node) in self.flowing

    def _refuse_unfollowed(self, node: Node, region: GraphModule) -> None:
        """What changes under `no_grad` keeps the gradient that it had, whatever its value is now."""
        written = {storage(target) for target in changed(region)} - {None}
        for operand in node.all_input_nodes:
            if self._flows(operand) and storage(operand) in written:
                raise RunsEagerlyError(f"forward changes {operand.name} in place under no_grad")


def _sparse_gradient(node: Node) -> str | None:
    """Which argument of a call says that a gradient shall be a sparse tensor."""
    schema: Any = getattr(node.target, "_schema", None)
    if schema is None:
        return None
    for place, argument in enumerate(schema.arguments):
        given = node.args[place] if place < len(node.args) else node.kwargs.get(argument.name)
        if argument.name in _SPARSE and given is True:
            return f"{schema.name.removeprefix('aten::')} with {argument.name}=True"
    return None
