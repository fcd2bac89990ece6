"""Intermediate values of an ONNX model: ONNX Runtime in float32, its evaluator in float64, and compiled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import onnx
import onnx_ir as ir

from daceml.frontend.onnx_import.importer import import_source
from daceml.frontend.onnx_import.metadata import node_origin
from daceml.frontend.onnx_import.model_file import ModelSource, checked
from daceml.verification.accuracy import tensor_error
from daceml.verification.divergence import Diagnosis, Intermediate, Origin, conclusion, first_divergence
from daceml.verification.instrumented_program import SEEN, instrumented
from daceml.verification.onnx_reference import onnx_peers

if TYPE_CHECKING:
    import torch

    from daceml.module.onnx_model import ONNXModel


def diagnose_onnx(model: ONNXModel, inputs: Sequence[torch.Tensor], *, outputs_fail: bool) -> Diagnosis:
    """Compare every intermediate value of an ONNX model for one set of inputs.

    Args:
        inputs: tensors in the order of the model's inputs.
        outputs_fail: whether a result of the program itself is outside its limit.
    Raises:
        CallError: ONNX Runtime or ONNX's evaluator cannot run the model.
    """
    whole = model.model
    origins = _origins(whole)
    names = list(origins)
    eager, reference = onnx_peers(_with_outputs(whole, names))
    theirs = eager(inputs)
    truth = reference([x.double() if x.is_floating_point() else x for x in inputs])
    if len(names) == 1:
        theirs, truth = (theirs,), (truth,)
    source = checked(ModelSource(model=_with_copies(whole, names), name=model.name))
    network = import_source(source, name="network", dims=model.dims)
    with instrumented(network, source.weights) as (program, chosen):
        given = [x if x.is_contiguous() else x.contiguous() for x in inputs]
        ours = program(given)[-len(names) :] if names else []
    values = [
        Intermediate(
            origin=origin,
            implementation=chosen.get(name, "unknown"),
            error=tensor_error(name, mine, peer, exact, depth=origin.depth),
        )
        for (name, origin), mine, peer, exact in zip(origins.items(), ours, theirs, truth, strict=True)
    ]
    return Diagnosis(
        values=tuple(values),
        first=first_divergence(values),
        conclusion=conclusion(values, None, outputs_fail=outputs_fail),
    )


def _origins(model: onnx.ModelProto) -> dict[str, Origin]:
    """Every result of every operator, in the order of the model."""
    origins: dict[str, Origin] = {}
    for node in ir.from_proto(model).graph:
        if node.op_type == "Constant":
            continue
        operands = [str(v.name) for v in node.inputs if v is not None and v.name in origins]
        depth = 1 + max((origins[name].depth for name in operands), default=0)
        module_path, source = node_origin(node)
        for value in node.outputs:
            if value.name:
                origins[value.name] = Origin(
                    name=value.name,
                    operator=node.op_type,
                    operands=tuple(dict.fromkeys(operands)),
                    module_path=module_path,
                    source=source or (f"node {node.name}" if node.name else ""),
                    depth=depth,
                )
    return origins


def _with_outputs(model: onnx.ModelProto, names: Sequence[str]) -> onnx.ModelProto:
    """The model with these values as its only outputs; both evaluators infer their types."""
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    del changed.graph.output[:]
    changed.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    return changed


def _with_copies(model: onnx.ModelProto, names: Sequence[str]) -> onnx.ModelProto:
    """The model with a copy of each of these values as a further output."""
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    changed.graph.node.extend(onnx.helper.make_node("Identity", [name], [name + SEEN]) for name in names)
    changed.graph.output.extend(onnx.ValueInfoProto(name=name + SEEN) for name in names)
    return changed
