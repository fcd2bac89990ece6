"""Bring any model to the form that the importer reads: onnx_ir, opset 13 or newer, functions inlined."""

from __future__ import annotations

import onnx
import onnx.version_converter
import onnx_ir as ir
import onnx_ir.passes.common as passes

from daceml.errors import OnnxFileError, ShapeError, UnknownOperatorError
from daceml.onnx_ops.nodes import is_defined

# Before opset 13, operators took as attributes what are inputs now, and some broadcast by other rules.
OLDEST_OPSET = 13


def prepare(model: onnx.ModelProto | ir.Model) -> ir.Model:
    """A model in onnx_ir that shares tensors with the given one, which is not changed.

    Raises:
        OnnxFileError: the model cannot be read.
        ShapeError: an initializer is sparse.
        UnknownOperatorError: its opset is too old and cannot be converted, or functions cannot be inlined.
    """
    opset = _opset(model)
    if opset is not None and opset < OLDEST_OPSET:
        model = _convert(ir.to_proto(model) if isinstance(model, ir.Model) else model, opset)
    if not isinstance(model, ir.Model):
        _refuse_sparse(model)
        try:
            model = ir.from_proto(model)
        except Exception as error:  # onnx_ir raises whatever the malformed part trips over
            raise OnnxFileError(
                "the model cannot be read",
                where=f"graph {model.graph.name or '(unnamed)'}",
                why=str(_innermost(error)),
                fix="run onnx.checker.check_model on the model and mend what it names",
            ) from error
        return _inline(model) if model.functions else model
    return _inline(model.clone()) if model.functions else model


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


def _opset(model: onnx.ModelProto | ir.Model) -> int | None:
    if isinstance(model, ir.Model):
        return model.opset_imports.get("", model.opset_imports.get("ai.onnx"))
    return next((entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")), None)


def _convert(model: onnx.ModelProto, opset: int) -> onnx.ModelProto:
    try:
        return onnx.version_converter.convert_version(model, OLDEST_OPSET)
    except Exception as error:  # the C++ converter raises several unrelated types
        raise UnknownOperatorError(
            f"the model's opset {opset} is too old",
            where=f"graph {model.graph.name or '(unnamed)'}",
            why=f"daceml takes opset {OLDEST_OPSET} or newer; onnx.version_converter cannot convert it: "
            + str(error).strip(),
            fix="export the model again with a newer opset (18 or later is best)",
        ) from error


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
