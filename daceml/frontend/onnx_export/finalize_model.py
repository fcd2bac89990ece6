"""From what the exporter leaves to the model of the contract: outputs, ties, names, metadata.

Mutates the model that it is given.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import onnx_ir as ir
import torch
from onnx_ir.passes.common import InlinePass
from onnx_ir.tensor_adapters import TorchTensor

from daceml.frontend.capture.module_attributes import places
from daceml.frontend.capture.provenance import module_of_node, source_of_node, source_of_trace
from daceml.frontend.onnx_export.exporter_internals import OPSET, Changed
from daceml.onnx_ops.domain.torch_fallback import DOMAIN as TORCH_DOMAIN
from daceml.onnx_ops.schema.random_operators import is_random

if TYPE_CHECKING:
    from torch.export import ExportedProgram

IR_VERSION = 11
"""The ONNX file format that came with opset 23."""

_COMPLEX = {torch.complex64: ir.DataType.COMPLEX64, torch.complex128: ir.DataType.COMPLEX128}
_TORCHLIB = "pkg.onnxscript"

OPTIONAL_OUTPUTS = frozenset(
    {"Attention", "Dropout", "LayerNormalization", "MaxPool", "SoftmaxCrossEntropyLoss"}
)
"""Operators whose trailing outputs may be left out."""


def finish(
    model: ir.Model, program: ExportedProgram, *, changed: Changed, dim_names: Mapping[str, str]
) -> None:
    """Bring a fresh model into its final form.

    Args:
        changed: the buffers that the first outputs replace, and the inputs and parameters that the last do.
        dim_names: the user's name for a symbolic dimension of the program.
    """
    mutated = changed.buffers
    model.opset_imports[""] = OPSET
    model.ir_version = IR_VERSION
    for function in model.functions.values():
        function.opset_imports[""] = OPSET
    model.graph.name = "main_graph"
    model.graph.metadata_props.clear()
    _inline_torchlib(model)
    _order_outputs(model.graph, mutated)
    _type_mutations(model.graph, mutated)
    _remove_unread(model.graph)
    _complete_state(model.graph, program)
    tied = _tie(model.graph, program)
    for name in program.graph_signature.inputs_to_lifted_tensor_constants.values():
        if name in model.graph.initializers and not model.graph.initializers[name].uses():
            model.graph.initializers.pop(name)
    _type_complex(model.graph, program)
    _write_provenance(model)
    _type_constants(model.graph)
    _name_values(model.graph, [*changed.others, *mutated])
    if dim_names:
        _rename_dims(model, dim_names)
    kept = model.graph.initializers
    model.metadata_props.update(
        {
            "daceml.parameters": json.dumps([n for n in program.graph_signature.parameters if n in kept]),
            "daceml.buffers": json.dumps([n for n in program.graph_signature.buffers if n in kept]),
            "daceml.buffer_mutations": json.dumps({f"{buffer}::next": buffer for buffer in mutated}),
            "daceml.other_mutations": json.dumps({f"{name}::next": name for name in changed.others}),
            "daceml.tied": json.dumps(tied),
        }
    )


def _inline_torchlib(model: ir.Model) -> None:
    """torch writes some translations as functions of a domain of its own; ours ("daceml") stay."""
    if any(function.domain.startswith(_TORCHLIB) for function in model.functions.values()):
        InlinePass(lambda function: function.domain.startswith(_TORCHLIB))(model)
        for name in [name for name in model.opset_imports if name.startswith(_TORCHLIB)]:
            del model.opset_imports[name]


def _order_outputs(graph: ir.Graph, mutated: Sequence[str]) -> None:
    """User outputs first, then the mutations; an output that is no value of its own gets an Identity."""
    values = list(graph.outputs)
    graph.outputs.clear()
    taken: set[ir.Value] = set()
    for value in values[len(mutated) :] + values[: len(mutated)]:
        if value.producer() is None or value in taken:
            node = ir.Node("", "Identity", [value])
            graph.append(node)
            copy = node.outputs[0]
            copy.name, copy.type, copy.shape = f"{value.name}_output{len(taken)}", value.type, value.shape
            value = copy
        taken.add(value)
        graph.outputs.append(value)


def _type_mutations(graph: ir.Graph, mutated: Sequence[str]) -> None:
    """A buffer keeps its type; torch's traces say bfloat16 for float32 statistics of a bfloat16 input."""
    for value, buffer in zip(graph.outputs[len(graph.outputs) - len(mutated) :], mutated, strict=True):
        if buffer in graph.initializers and (kept := graph.initializers[buffer].dtype) is not None:
            value.dtype = kept


def _type_complex(graph: ir.Graph, program: ExportedProgram) -> None:
    """Complex tensors keep their type; the exporter says pairs of real numbers, as its translations take."""

    def keep(value: ir.Value, tensor: torch.Tensor) -> None:
        if tensor.is_complex():
            value.dtype = _COMPLEX[tensor.dtype]
            value.shape = ir.Shape([n if type(n) is int else str(n) for n in tensor.shape])

    for node in graph:
        if node.domain == TORCH_DOMAIN and "node" in node.meta:
            for output, tensor in zip(node.outputs, node.meta["node"].meta["val"], strict=True):
                keep(output, tensor)
    placeholders = {n.name: n.meta.get("val") for n in program.graph.nodes if n.op == "placeholder"}
    for value in graph.inputs:
        if isinstance(tensor := placeholders.get(value.name or ""), torch.Tensor):
            keep(value, tensor)
    for name, value in graph.initializers.items():
        held: Any = program.state_dict.get(name, program.constants.get(name))
        if isinstance(held, torch.Tensor) and held.is_complex():
            keep(value, held)
            value.const_value = TorchTensor(held.detach(), name=name)


def _remove_unread(graph: ir.Graph) -> None:
    """Remove unread nodes, and copies within the graph. Draws stay: they move torch's generator."""
    for node in reversed(list(graph)):
        if node.op_type == "Identity" and node.domain == "" and not node.outputs[0].is_graph_output():
            (source,) = node.inputs
            assert source is not None, "Identity has one input"
            node.outputs[0].replace_all_uses_with(source)
        read = any(output.uses() or output.is_graph_output() for output in node.outputs)
        if not (read or _draws(node)):
            graph.remove(node, safe=True)
            continue
        if node.op_type in OPTIONAL_OUTPUTS and node.domain == "":
            outputs = node.outputs
            count = len(outputs)
            while count > 1 and not outputs[count - 1].uses() and not outputs[count - 1].is_graph_output():
                count -= 1
            if count < len(outputs):
                node.resize_outputs(count)


def _draws(node: ir.Node) -> bool:
    kernel_draws = node.attributes.get("draws")
    return is_random(node.op_type, node.domain) or (kernel_draws is not None and kernel_draws.as_int() == 1)


def _complete_state(graph: ir.Graph, program: ExportedProgram) -> None:
    """An initializer for state that no node reads, too: torch's public exporter leaves it out.

    It also leaves out all but one name of a tied tensor.
    """
    for name in (*program.graph_signature.parameters, *program.graph_signature.buffers):
        tensor: Any = program.state_dict.get(name, program.constants.get(name))
        if tensor is None or name in graph.initializers:
            continue
        held = TorchTensor(tensor.detach(), name=name)
        graph.register_initializer(
            ir.Value(
                name=name,
                type=ir.TensorType(held.dtype),
                shape=ir.Shape(list(tensor.shape)),
                const_value=held,
            )
        )


def _tie(graph: ir.Graph, program: ExportedProgram) -> dict[str, str]:
    """One initializer for each tensor: several names of one tensor would split its gradient."""
    first: dict[object, str] = {}
    tied: dict[str, str] = {}
    for name, place in places(program):
        if name not in graph.initializers:
            continue
        kept = first.setdefault(place, name)
        if kept != name:
            graph.initializers[name].replace_all_uses_with(graph.initializers[kept])
            graph.initializers.pop(name)
            tied[name] = kept
    return tied


# What torch counts from 0 only, and ONNX from either end
_FROM_ZERO = frozenset(
    {"aten.embedding.default", "aten.index_select.default", "aten.gather.default"}
    | {f"aten.scatter.{overload}" for overload in ("src", "value", "reduce", "value_reduce")}
    | {"aten.scatter_add.default", "aten.scatter_reduce.two"}
    | {"aten.index_add.default", "aten.index_copy.default"}
    | {"aten.max_unpool2d.default", "aten.max_unpool3d.default"}
)
_COUNTED = frozenset({"Gather", "GatherElements", "ScatterElements", "ScatterND"})


def _write_provenance(model: ir.Model) -> None:
    """Module path and user's line on every node, instead of the exporter's long texts."""
    for graph in (model.graph, *model.functions.values()):
        for node in graph:
            if "node" in node.meta:
                module, source = module_of_node(node.meta["node"]), source_of_node(node.meta["node"])
            else:
                scopes = node.metadata_props.get("pkg.torch.onnx.name_scopes", "[]")
                path: list[str] = ast.literal_eval(scopes)
                module = path[-2] if len(path) > 1 and "_empty_nn_module_stack" not in path[-2] else ""
                source = source_of_trace(node.metadata_props.get("pkg.torch.onnx.stack_trace", ""))
            traced = node.meta.get("node")
            target = str(getattr(traced, "target", ""))
            called = str(traced.meta.get("original_aten", target)) if traced else ""  # before decompositions
            node.metadata_props.clear()
            if node.op_type in _COUNTED and {target, called} & _FROM_ZERO:
                # ONNX counts negative positions from the end, torch refuses them
                node.metadata_props["daceml.lowest_index"] = "0"
            if node.op_type == "Gather" and target == "aten.embedding.default":
                node.metadata_props.update(_notes_on_gradient(node.meta["node"]))
            if graph is model.graph and (module or source):
                node.metadata_props.update({"daceml.module": module, "daceml.source": source})
    for value in (*model.graph.inputs, *model.graph.initializers.values(), *model.graph.outputs):
        value.metadata_props.clear()


def _notes_on_gradient(node: torch.fx.Node) -> dict[str, str]:
    """What an embedding says of its gradient, which ONNX's Gather has no attribute for."""
    given = dict(zip(("weight", "indices", "padding_idx", "scale_grad_by_freq"), node.args, strict=False))
    given |= node.kwargs
    notes: dict[str, str] = {}
    padding = given.get("padding_idx", -1)
    if isinstance(padding, int) and padding >= 0:
        notes["daceml.padding_row"] = str(padding)
    if given.get("scale_grad_by_freq"):
        notes["daceml.by_frequency"] = "1"
    return notes


def _type_constants(graph: ir.Graph) -> None:
    for node in graph:
        if node.op_type == "Constant" and node.domain == "" and node.outputs[0].shape is None:
            tensor = ir.convenience.get_const_tensor(node.outputs[0])
            if tensor is not None:
                node.outputs[0].dtype, node.outputs[0].shape = tensor.dtype, ir.Shape(tensor.numpy().shape)


def _name_values(graph: ir.Graph, mutated: Sequence[str]) -> None:
    """Unique names: initializers keep their keys, mutations are `<buffer>::next`, the rest gives way."""
    for value, buffer in zip(graph.outputs[len(graph.outputs) - len(mutated) :], mutated, strict=True):
        value.name = f"{buffer}::next"
    used = set(graph.initializers)
    fresh = 0
    for value in (*graph.inputs, *(output for node in graph for output in node.outputs)):
        base = name = value.name or "value"
        while name in used:
            fresh += 1
            name = f"{base}_{fresh}"
        if name != value.name:
            value.name = name
        used.add(name)
    for position, node in enumerate(graph):
        if not node.name or node.name.startswith("node_"):
            node.name = f"{node.op_type}_{position}"


def _rename_dims(model: ir.Model, names: Mapping[str, str]) -> None:
    pattern = re.compile(r"\b(" + "|".join(map(re.escape, names)) + r")\b")
    values = (*model.graph.inputs, *(output for node in model.graph for output in node.outputs))
    for value in values:
        if value.shape is not None and not all(isinstance(dim, int) for dim in value.shape):
            dims = [
                dim
                if isinstance(dim, int) or dim.value is None
                else pattern.sub(lambda m: names[m[0]], dim.value)
                for dim in value.shape
            ]
            value.shape = ir.Shape([dim if isinstance(dim, int | str) else None for dim in dims])
