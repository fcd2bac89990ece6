"""Calls of torch's own kernels, see `daceml.frontend.onnx_export.torch_fallback`: nodes of `daceml.aten`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import onnx_ir as ir
import onnxscript.evaluator

from daceml.frontend.onnx_export.translations import translates
from daceml.frontend.onnx_export.translations.emit import Value
from daceml.onnx_ops.domain.torch_fallback import DOMAIN
from daceml.runtime.torch_fallback import draws_numbers, overload_of


@translates("daceml.torch_operator.default")
def torch_operator(
    call: str, results: int, underived: str, tensors: Sequence[Value], numbers: Sequence[Value]
) -> Sequence[Value]:
    said = json.loads(call)
    name = said["operator"]
    draws = int(draws_numbers(overload_of(name), said["args"], said["kwargs"]))
    node = ir.Node(
        DOMAIN,
        name,
        [*tensors, *numbers],
        [ir.AttrString("call", call), ir.AttrInt64("draws", draws), ir.AttrString("underived", underived)],
        num_outputs=results,
    )
    recorder: Any = onnxscript.evaluator.default()
    recorder.nodes.append(node)
    return list(node.outputs)
