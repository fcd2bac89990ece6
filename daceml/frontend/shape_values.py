"""Values of the small tensors that shapes are computed from, as in Shape -> Gather -> Concat -> Reshape.

ONNX shape inference propagates such values through few operators. Where it stops, the nodes whose inputs are
all known are evaluated with ONNX's reference implementation, on small tensors only. The graph stays as it is.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx_ir as ir

from daceml.frontend.declared import SMALL_ELEMENTS, Declared

# These differ from call to call, so no value of theirs is known.
_RANDOM = frozenset(
    [
        "Bernoulli",
        "Dropout",
        "Multinomial",
        "RandomNormal",
        "RandomNormalLike",
        "RandomUniform",
        "RandomUniformLike",
    ]
)


def fold(
    model: ir.Model, types: Mapping[str, Declared], values: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Values that follow from known shapes and values, by value name; only the new ones.

    Args:
        model: read only.
        types: what is known about each value's type.
        values: what is known so far: small initializers, constants, earlier results.
    """
    known = dict(values)
    found: dict[str, np.ndarray] = {}
    for node in model.graph:
        names = [value.name or "" for value in node.outputs]
        if node.domain not in ("", "ai.onnx") or all(name in known for name in names if name):
            continue
        results = _evaluate(node, model, types, known)
        for name, result in zip(names, results, strict=False):
            if name:
                known[name] = found[name] = result
    return found


def static_shape(entry: Declared | None) -> tuple[int, ...] | None:
    """The shape, if every dimension is a number."""
    if entry is None or entry.shape is None or entry.refusal:
        return None
    numbers = tuple(dim for dim in entry.shape if isinstance(dim, int))
    return numbers if len(numbers) == len(entry.shape) else None


def _evaluate(
    node: ir.Node, model: ir.Model, types: Mapping[str, Declared], known: Mapping[str, np.ndarray]
) -> list[np.ndarray]:
    if node.op_type in ("Shape", "Size"):
        return _shape_of(node, types)
    if node.op_type in _RANDOM or any(a.type == ir.AttributeType.GRAPH for a in node.attributes.values()):
        return []
    names = [value.name for value in node.inputs if value is not None and value.name]
    if any(name not in known for name in names) or not all(_is_small(types, value) for value in node.outputs):
        return []
    return _run(node, model, {name: known[name] for name in names})


def _is_small(types: Mapping[str, Declared], value: ir.Value) -> bool:
    shape = static_shape(types.get(value.name or ""))
    return not value.name or (shape is not None and int(np.prod(shape)) <= SMALL_ELEMENTS)


def _shape_of(node: ir.Node, types: Mapping[str, Declared]) -> list[np.ndarray]:
    value = node.inputs[0] if node.inputs else None
    shape = static_shape(types.get(value.name or "")) if value is not None else None
    if shape is None:
        return []
    if node.op_type == "Size":
        return [np.asarray(np.prod(shape, dtype=np.int64), dtype=np.int64)]
    start = node.attributes.get_int("start", 0)
    end = node.attributes.get_int("end", len(shape))
    return [np.asarray(shape[start:end], dtype=np.int64)]


def _run(node: ir.Node, model: ir.Model, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    from onnx.reference import ReferenceEvaluator  # slow to import, seldom needed

    try:
        evaluator = ReferenceEvaluator(ir.serde.serialize_node(node), opsets=dict(model.opset_imports))
        results = evaluator.run(None, feeds)
    except Exception:
        # A value that cannot be evaluated stays unknown; where a shape needs it, the caller's error says so.
        return []
    arrays = [np.asarray(result) for result in results]
    return arrays if all(array.size <= SMALL_ELEMENTS and array.dtype != object for array in arrays) else []
