"""Tensors of which forward takes a copy: they may change before the backward pass, as in eager PyTorch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from daceml.frontend.capture.gradients.gradient_stops import storage

if TYPE_CHECKING:
    from torch.export import ExportedProgram


def cloned_operands(exported: ExportedProgram) -> frozenset[int | str]:
    """Places of inputs, and keys of the module's tensors, that forward clones, or clones a view of.

    A program reads them where they lie, so that its backward pass has to take the copy.
    """
    signature = exported.graph_signature
    keys = {**signature.inputs_to_parameters, **signature.inputs_to_buffers}
    cloned = {
        storage(node.args[0])
        for node in exported.graph.nodes
        if node.target is torch.ops.aten.clone.default and node.args
    }
    found: set[int | str] = set()
    place = 0
    for node in exported.graph.nodes:
        if node.op != "placeholder" or not isinstance(node.meta.get("val"), torch.Tensor):
            continue
        own = node.name in keys
        if storage(node) in cloned - {None}:
            found.add(keys[node.name] if own else place)
        place += not (own or node.name in signature.inputs_to_lifted_tensor_constants)
    return frozenset(found)
