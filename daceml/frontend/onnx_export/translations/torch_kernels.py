"""Nodes of the domain "daceml" that stand for one ATen operator each."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import onnx
from onnxscript.values import Op

from daceml.frontend.onnx_export.translations import torch_functions
from daceml.frontend.onnx_export.translations.embedding_functions import DACEML
from daceml.onnx_ops.domain.torch_kernels import DOMAIN, ROWS, type_of


@functools.cache
def kernel(name: str) -> Callable[..., Any]:
    """Function that emits a node of an operator of `daceml.onnx_ops.domain.torch_kernels`."""
    return getattr(torch_functions, name, None) or _without_body(name)


def _without_body(name: str) -> Callable[..., Any]:
    row = ROWS[name]
    parameters = {side: [type_of(p) for p in getattr(row, side)] for side in ("inputs", "outputs")}
    variables = {variable: types for side in parameters.values() for _, variable, types in side}
    kinds = {"int": onnx.defs.OpSchema.AttrType.INT, "float": onnx.defs.OpSchema.AttrType.FLOAT}
    schema = onnx.defs.OpSchema(
        name,
        DOMAIN,
        1,
        inputs=[onnx.defs.OpSchema.FormalParameter(n, v) for n, v, _ in parameters["inputs"]],
        outputs=[onnx.defs.OpSchema.FormalParameter(n, v) for n, v, _ in parameters["outputs"]],
        type_constraints=[(variable, list(types), "") for variable, types in variables.items()],
        attributes=[
            onnx.defs.OpSchema.Attribute(n, kinds.get(k, onnx.defs.OpSchema.AttrType.INTS), "", required=True)
            for n, k in row.attributes().items()
        ],
    )
    return Op(DACEML, name, schema)
