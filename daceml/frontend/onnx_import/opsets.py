"""Opset versions: which are taken as they are, which are converted first, which are refused."""

from __future__ import annotations

import re
from collections.abc import Callable

import onnx
import onnx.defs
import onnx.version_converter

from daceml.errors import UnknownOperatorError
from daceml.frontend.onnx_import.declared_types import SMALL_ELEMENTS
from daceml.frontend.onnx_import.opset_semantics import align_hardmax, align_slopes, place_outputs
from daceml.frontend.onnx_import.tensor_data import elements

# Before opset 13, operators took as attributes what are inputs now, and some broadcast by other rules.
OLDEST_OPSET = 13

# The IR version since which initializers need not be graph inputs, too
_INITIALIZERS_ALONE = 4

# Takes a model and an opset
Convert = Callable[[onnx.ModelProto, int], onnx.ModelProto]


def convert_here(model: onnx.ModelProto, opset: int) -> onnx.ModelProto:
    """Convert in this process, for models that can be trusted."""
    return onnx.version_converter.convert_version(model, opset)


def supported(model: onnx.ModelProto, convert: Convert = convert_here) -> onnx.ModelProto:
    """The model at an opset that the importer reads: the same object, or one that shares no data with it.

    Args:
        model: not changed.
        convert: gets no tensor data but that of small tensors, which may be axes or pads.
    Raises:
        UnknownOperatorError: an opset that is newer than the installed onnx, or older and not convertible.
    """
    opset = opset_of(model)
    newest = onnx.defs.onnx_opset_version()
    if opset is not None and not 1 <= opset <= newest:
        raise UnknownOperatorError(
            f"opset {opset} is {'newer than this onnx' if opset > 0 else 'no opset'}",
            where=f"graph {model.graph.name or '(unnamed)'}",
            why=f"onnx {onnx.__version__} knows opsets 1 to {newest}",
            fix="install a newer onnx, or export the model with an older opset",
        )
    if opset is None or opset >= OLDEST_OPSET:
        return model
    data = {tensor.name: tensor for tensor in model.graph.initializer if elements(tensor) > SMALL_ELEMENTS}
    try:
        bare = _without(model, data)
        align_slopes(bare, opset)
        align_hardmax(bare, opset)
        converted = convert(bare, OLDEST_OPSET)
    except UnknownOperatorError:
        raise
    except Exception as error:  # the C++ converter raises several unrelated types
        raise _cannot_convert(model, opset, str(error).strip()) from error
    _check_complete(model, converted, opset)
    place_outputs(converted, opset)
    for tensor in converted.graph.initializer:
        if tensor.name in data:
            tensor.CopyFrom(data[tensor.name])
    _declare_as_before(model.graph, converted.graph)
    return converted


def _declare_as_before(before: onnx.GraphProto, after: onnx.GraphProto) -> None:
    """The converter writes down the types that it infers, which the importer infers by rules of its own."""
    del after.value_info[:]
    after.value_info.extend(before.value_info)
    for ours, theirs in zip(after.output, before.output, strict=True):
        ours.CopyFrom(theirs)


def opset_of(model: onnx.ModelProto) -> int | None:
    """The version of the standard domain that a model imports."""
    return next((entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")), None)


def _without(model: onnx.ModelProto, data: dict[str, onnx.TensorProto]) -> onnx.ModelProto:
    """A copy whose large tensors have type and shape only."""
    bare = onnx.ModelProto()
    for field, value in model.ListFields():
        if field.name != "graph":
            _copy(bare, field.name, value)
    for field, value in model.graph.ListFields():
        if field.name != "initializer":
            _copy(bare.graph, field.name, value)
    for entry in (*bare.opset_import, *bare.graph.node):
        if entry.domain == "ai.onnx":  # the converter knows the standard domain by its other name only
            entry.domain = ""
    bare.ir_version = max(model.ir_version, _INITIALIZERS_ALONE)
    for tensor in model.graph.initializer:
        if tensor.name in data:
            bare.graph.initializer.add(name=tensor.name, data_type=tensor.data_type, dims=tensor.dims)
        else:
            bare.graph.initializer.add().CopyFrom(tensor)
    return bare


def _copy(target: onnx.ModelProto | onnx.GraphProto, name: str, value: object) -> None:
    part = getattr(target, name)
    if hasattr(part, "extend"):
        part.extend(value)
    else:
        setattr(target, name, value)


def _check_complete(model: onnx.ModelProto, converted: onnx.ModelProto, opset: int) -> None:
    """The converter has been seen to drop outputs of graphs that it does not understand."""
    before, after = ([value.name for value in m.graph.output] for m in (model, converted))
    if before != after or opset_of(converted) != OLDEST_OPSET:
        raise _cannot_convert(model, opset, f"its result returns {', '.join(after) or 'nothing'}")
    if len(converted.functions) < len(model.functions):
        raise _cannot_convert(model, opset, "it drops the model's local functions")


def _cannot_convert(model: onnx.ModelProto, opset: int, reason: str) -> UnknownOperatorError:
    # "... No Adapter From Version $9 for Upsample"
    named = re.search(r"No Adapter (?:From|To) Version \$?\d+ for (\w+)", reason)
    operator = f", and its {named[1]} cannot be converted" if named else ""
    return UnknownOperatorError(
        f"the model's opset {opset} is too old{operator}",
        where=f"graph {model.graph.name or '(unnamed)'}",
        why=f"daceml takes opset {OLDEST_OPSET} or newer; onnx.version_converter cannot convert it: {reason}",
        fix="export the model again with a newer opset (18 or later is best)",
    )
