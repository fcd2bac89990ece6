"""Functions with gradients of their own, see `daceml.frontend.capture.gradients.custom_gradients`."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import onnx
from onnxscript.values import Op

from daceml.frontend.onnx_export.translations import translates
from daceml.frontend.onnx_export.translations.embedding_functions import DACEML
from daceml.frontend.onnx_export.translations.emit import Value
from daceml.onnx_ops.schema.nodes import node_class

_FLOATS = [f"tensor({name})" for name in ("float", "double", "float16", "bfloat16")]


@functools.cache
def _operator(name: str) -> Any:
    schema = node_class(name, domain="daceml").schema
    formal = onnx.defs.OpSchema.FormalParameter
    options = onnx.defs.OpSchema.FormalParameterOption

    def parameters(formals: Sequence[Any]) -> list[Any]:
        return [
            formal(f.name, "T", param_option=options.Variadic if f.option == "variadic" else options.Single)
            for f in formals
        ]

    made = onnx.defs.OpSchema(
        name,
        "daceml",
        1,
        inputs=parameters(schema.inputs),
        outputs=parameters(schema.outputs),
        type_constraints=[("T", _FLOATS, "")],
    )
    return Op(DACEML, name, made)


@translates("daceml.cotangent_of.default")
def cotangent_of(x: Value) -> Value:
    return _operator("CotangentOf")(x)


@translates("daceml.with_gradient.default")
def with_gradient(result: Value, operands: Sequence[Value], gradients: Sequence[Value]) -> Value:
    # one variadic operand: onnxscript would give the first one twice otherwise
    return _operator("WithGradient")(result, *operands, *gradients)
