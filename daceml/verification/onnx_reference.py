"""The peers of an ONNX model in a verification: ONNX Runtime, and ONNX's own evaluator in float64."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import onnx
import torch
from onnx import TensorProto, numpy_helper
from onnx.reference import ReferenceEvaluator

from daceml.errors import CallError
from daceml.module.arrays.call_inputs import to_numpy

Run = Callable[[Sequence[torch.Tensor]], Any]

_NARROW = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16)
# Attributes that hold the number of an element type: Cast, and everything that creates a tensor.
_TYPE_ATTRIBUTES = ("to", "dtype")


def onnx_peers(model: onnx.ModelProto) -> tuple[Run, Run]:
    """Functions from inputs to a tensor or tuple: ONNX Runtime on the model, ONNX's evaluator in float64.

    Raises:
        CallError: when called, if one of them cannot run the model.
    """
    import onnxruntime

    names = [i.name for i in model.graph.input if i.name not in {t.name for t in model.graph.initializer}]

    def runtime(arrays: dict[str, np.ndarray]) -> Iterable[Any]:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        session = onnxruntime.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        return session.run(None, arrays)

    def reference(arrays: dict[str, np.ndarray]) -> Iterable[Any]:
        return ReferenceEvaluator(in_float64(model)).run(None, arrays)

    return _peer("ONNX Runtime", runtime, names), _peer("ONNX's reference evaluator", reference, names)


def in_float64(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy whose floating-point tensors are all float64: data, types, casts and created tensors."""
    wide = onnx.ModelProto()
    wide.CopyFrom(model)
    for values in (wide.graph.input, wide.graph.output, wide.graph.value_info):
        for value in values:
            if value.type.tensor_type.elem_type in _NARROW:
                value.type.tensor_type.elem_type = TensorProto.DOUBLE
    _widen(wide.graph)
    return wide


def _widen(graph: onnx.GraphProto) -> None:
    for tensor in graph.initializer:
        _widen_tensor(tensor)
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                _widen(attribute.g)
            elif attribute.type == onnx.AttributeProto.TENSOR:
                _widen_tensor(attribute.t)
            elif attribute.name in _TYPE_ATTRIBUTES and attribute.i in _NARROW:
                attribute.i = TensorProto.DOUBLE
            elif node.op_type == "Constant" and attribute.name in ("value_float", "value_floats"):
                _replace_float_constant(attribute)


def _widen_tensor(tensor: TensorProto) -> None:
    if tensor.data_type in _NARROW:
        tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype("float64"), tensor.name))


def _replace_float_constant(attribute: onnx.AttributeProto) -> None:
    """value_float(s) are always float32, so they become a tensor."""
    held = attribute.f if attribute.name == "value_float" else list(attribute.floats)
    tensor = numpy_helper.from_array(np.asarray(held, dtype=np.float64))
    attribute.CopyFrom(onnx.helper.make_attribute("value", tensor))


def _peer(title: str, run: Callable[[dict[str, np.ndarray]], Iterable[Any]], names: Sequence[str]) -> Run:
    def call(inputs: Sequence[torch.Tensor]) -> Any:
        arrays = {name: to_numpy(tensor) for name, tensor in zip(names, inputs, strict=True)}
        try:
            outputs = tuple(torch.as_tensor(array) for array in run(arrays))
        except Exception as error:
            raise CallError(
                f"{title} cannot run the model, so there is nothing to compare with",
                why=f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else 'no message'}",
                fix="compare with the framework that made the model",
            ) from error
        return outputs[0] if len(outputs) == 1 else outputs

    return call
