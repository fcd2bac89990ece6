"""Values of the small tensors that shapes are computed from, as in Shape -> Gather -> Concat -> Reshape.

ONNX shape inference propagates such values through few operators. Where it stops, the nodes whose inputs are
all known are evaluated with ONNX's reference implementation, on small tensors only. The graph stays as it is.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import onnx_ir as ir

from daceml.frontend.onnx_import.declared_types import SMALL_ELEMENTS, Declared

# Operators that shapes are computed with. Others are not evaluated: a model may ask for any amount of work.
_EVALUATED = frozenset(
    """
    Abs Add And ArgMax ArgMin BitShift Cast CastLike Ceil Clip Compress Concat ConstantOfShape CumSum Div
    Equal Expand Flatten Floor Gather GatherElements GatherND Greater GreaterOrEqual Identity Less
    LessOrEqual Max Min Mod Mul Neg NonZero Not OneHot Or Pad Pow Range Reciprocal ReduceMax ReduceMin
    ReduceProd ReduceSum Reshape Round ScatterElements ScatterND Shape Sign Size Slice Split Sqrt Squeeze
    Sub Sum Tile TopK Transpose Trilu Unsqueeze Where Xor
    """.split()  # noqa: SIM905  (reads as prose)
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
    if node.op_type not in _EVALUATED:
        return []
    names = [value.name for value in node.inputs if value is not None and value.name]
    if any(name not in known for name in names) or not all(_is_small(types, value) for value in node.outputs):
        return []
    feeds = {name: known[name] for name in names}
    return _run(node, model, feeds) if node.op_type != "Range" or _is_short(node, feeds) else []


def _is_small(types: Mapping[str, Declared], value: ir.Value) -> bool:
    shape = static_shape(types.get(value.name or ""))
    return not value.name or (shape is not None and math.prod(shape) <= SMALL_ELEMENTS)


def _is_short(node: ir.Node, feeds: Mapping[str, np.ndarray]) -> bool:
    """Whether a Range has few elements; its inferred length may be declared and wrong."""
    scalars = [feeds[value.name or ""].reshape(-1) for value in node.inputs if value is not None]
    if len(scalars) != 3 or any(scalar.size != 1 for scalar in scalars):
        return False
    start, limit, delta = (float(scalar[0]) for scalar in scalars)
    return delta != 0 and (limit - start) / delta <= SMALL_ELEMENTS


def _shape_of(node: ir.Node, types: Mapping[str, Declared]) -> list[np.ndarray]:
    value = node.inputs[0] if node.inputs else None
    entry = types.get(value.name or "") if value is not None else None
    if entry is None or entry.shape is None or entry.refusal:
        return []
    if node.op_type == "Size":
        shape = static_shape(entry)
        known = shape is not None and math.prod(shape) < 2**63
        return [np.asarray(math.prod(shape), dtype=np.int64)] if shape is not None and known else []
    start = node.attributes.get_int("start", 0)
    end = node.attributes.get_int("end", len(entry.shape))
    part = static_shape(Declared(shape=entry.shape[start:end]))
    return [] if part is None else [np.asarray(part, dtype=np.int64)]


def _run(node: ir.Node, model: ir.Model, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    from onnx.reference import ReferenceEvaluator  # slow to import, seldom needed

    try:
        evaluator = ReferenceEvaluator(ir.serde.serialize_node(node), opsets=dict(model.opset_imports))
        with np.errstate(all="ignore"):
            results = evaluator.run(None, feeds)
    except Exception:
        # A value that cannot be evaluated stays unknown; where a shape needs it, the caller's error says so.
        return []
    arrays = [np.asarray(result) for result in results]
    return arrays if all(array.size <= SMALL_ELEMENTS and array.dtype != object for array in arrays) else []
