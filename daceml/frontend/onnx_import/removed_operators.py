"""Operators that ONNX has withdrawn and that models still use, written with those that replace them."""

from __future__ import annotations

import itertools

import numpy as np
import onnx_ir as ir

# GroupNormalization came with opset 18, scaling groups; since opset 21 it scales channels.
_FIRST, _CHANGED = 18, 21


def replace_withdrawn(model: ir.Model) -> None:
    """Replace withdrawn operators. Mutates the model."""
    opset = model.opset_imports.get("", model.opset_imports.get("ai.onnx", 0))
    if not _FIRST <= opset < _CHANGED:
        return
    taken = {value.name for node in model.graph for value in node.outputs}
    taken |= {value.name for value in model.graph.inputs} | set(model.graph.initializers)
    for node in list(model.graph):
        if node.op_type == "GroupNormalization" and node.domain in ("", "ai.onnx") and len(node.inputs) == 3:
            _group_normalization(node, model.graph, taken)


def _group_normalization(node: ir.Node, graph: ir.Graph, taken: set[str | None]) -> None:
    """GroupNormalization-18(x, scale, bias) -> InstanceNormalization of x[N, groups, ...], in x's shape."""
    x, scale, bias = node.inputs
    stems = (f"groups_{i}" for i in itertools.count())
    stem = next(s for s in stems if not any(f"{s}_{k}" in taken for k in range(5)))
    taken.update(f"{stem}_{k}" for k in range(5))
    wanted = np.array([0, node.attributes.get_int("num_groups", 0), -1], dtype=np.int64)
    grouped = ir.node("Constant", [], attributes={"value": ir.tensor(wanted)})
    apart = ir.node("Reshape", [x, grouped.outputs[0]])
    epsilon = {"epsilon": node.attributes.get_float("epsilon", 1e-5)}
    normal = ir.node("InstanceNormalization", [apart.outputs[0], scale, bias], attributes=epsilon)
    shape = ir.node("Shape", [x])
    together = ir.node("Reshape", [normal.outputs[0], shape.outputs[0]], attributes={"allowzero": 1})
    made = [grouped, apart, normal, shape, together]
    for k, part in enumerate(made):
        part.name = node.name
        part.outputs[0].name = f"{stem}_{k}"
        part.metadata_props.update(node.metadata_props)
    old, new = node.outputs[0], together.outputs[0]
    new.name, new.type, new.shape = old.name, old.type, old.shape
    graph.insert_before(node, made)
    ir.convenience.replace_all_uses_with(old, new, replace_graph_outputs=True)
    graph.remove(node, safe=True)
