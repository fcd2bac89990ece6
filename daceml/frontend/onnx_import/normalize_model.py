"""Bring any model to the form that the importer reads: onnx_ir, opset 13 or newer, functions inlined, and
control flow whose way is known.
"""

from __future__ import annotations

import onnx
import onnx_ir as ir
import onnx_ir.passes.common as passes

from daceml.errors import OnnxFileError, ShapeError, UnknownOperatorError
from daceml.frontend.onnx_import.control_flow import inline_control_flow
from daceml.frontend.onnx_import.opsets import OLDEST_OPSET, Convert, convert_here, opset_of, supported
from daceml.frontend.onnx_import.removed_operators import replace_withdrawn
from daceml.onnx_ops.schema.nodes import is_defined


def prepare(model: onnx.ModelProto | ir.Model, convert: Convert = convert_here) -> ir.Model:
    """A model in onnx_ir that shares tensors with the given one, which is not changed.

    Args:
        model: with any opset.
        convert: brings models of older opsets to opset 13.
    Raises:
        OnnxFileError: the model cannot be read.
        ShapeError: an initializer is sparse.
        UnknownOperatorError: its opset is too new, or too old and cannot be converted, or functions cannot be
            inlined.
    """
    if isinstance(model, ir.Model):
        opset = model.opset_imports.get("", model.opset_imports.get("ai.onnx"))
        if opset is None or opset >= OLDEST_OPSET:
            return _inline(model.clone()) if model.functions else model
        model = ir.to_proto(model)
    made_for = opset_of(model)
    model = supported(model, convert)
    _refuse_sparse(model)
    model = inline_control_flow(model, opset=made_for)
    try:
        read = ir.from_proto(model)
    except Exception as error:  # onnx_ir raises whatever the malformed part trips over
        raise OnnxFileError(
            "the model cannot be read",
            where=f"graph {model.graph.name or '(unnamed)'}",
            why=str(_innermost(error)),
            fix="run onnx.checker.check_model on the model and mend what it names",
        ) from error
    read = _inline(read) if read.functions else read
    replace_withdrawn(read)
    _remove_unused_constants(read)
    _say_one_sided(read)
    return read


def _remove_unused_constants(model: ir.Model) -> None:
    """Constants that nothing reads, as inlined functions leave them: there is no type to be checked."""
    for node in list(model.graph):
        if node.op_type == "Constant" and node.domain in ("", "ai.onnx"):
            value = node.outputs[0] if node.outputs else None
            if value is not None and not value.uses() and not value.is_graph_output():
                model.graph.remove(node, safe=True)


def _say_one_sided(model: ir.Model) -> None:
    """Write down the default of STFT, one side: ONNX's shape inference takes both for it."""
    for node in model.graph:
        if node.op_type == "STFT" and node.domain in ("", "ai.onnx") and "onesided" not in node.attributes:
            node.attributes["onesided"] = ir.AttrInt64("onesided", 1)


def _refuse_sparse(model: onnx.ModelProto) -> None:
    for sparse in model.graph.sparse_initializer:
        raise ShapeError(
            f"initializer {sparse.values.name!r} is sparse",
            where=f"graph {model.graph.name or '(unnamed)'}",
            why="a network holds dense tensors only",
            fix="store it as a dense initializer",
        )


def _innermost(error: BaseException) -> BaseException:
    """onnx_ir wraps what went wrong once for each function that it passes."""
    while error.__cause__ is not None:
        error = error.__cause__
    return error


def _inline(model: ir.Model) -> ir.Model:
    """Inline local functions, but keep calls of operators that daceml has a class for (composites)."""
    try:
        passes.InlinePass(criteria=lambda function: not is_defined(function.name, function.domain))(model)
    except Exception as error:  # a pass wraps what it trips over
        cause = error.__cause__ or error
        raise UnknownOperatorError(
            "the model's local functions cannot be inlined",
            where=f"graph {model.graph.name or '(unnamed)'}",
            why=f"{type(cause).__name__}: {cause}",
            fix="inline them with onnx.inliner.inline_local_functions, or export without functions",
        ) from error
    return model
