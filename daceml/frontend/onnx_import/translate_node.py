"""One ONNX node -> one library node: class, attributes, connectors."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from daceml.errors import ControlFlowError, InvalidNodeError, UnheldValueError, UnknownOperatorError
from daceml.frontend.onnx_import.metadata import node_origin, where
from daceml.onnx_ops.domain.torch_fallback import DOMAIN as TORCH_DOMAIN
from daceml.onnx_ops.domain.torch_fallback import GRADIENTS as TORCH_GRADIENTS
from daceml.onnx_ops.schema.node import ONNXNode
from daceml.onnx_ops.schema.nodes import is_defined, node_class
from daceml.onnx_ops.schema.schema import exact_float

TORCH_DOMAINS = (TORCH_DOMAIN, TORCH_GRADIENTS)
# (connector, ONNX value name)
Binding = tuple[str, str]


def operator_class(node: ir.Node, model: ir.Model) -> type[ONNXNode]:
    """Class of a node at the opset version that the model imports.

    Raises:
        UnknownOperatorError: no schema for it.
        InvalidNodeError: the node has a body.
    """
    for attribute in node.attributes.values():
        if attribute.type in (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS):
            raise ControlFlowError(
                f"{node.op_type} has a body (attribute {attribute.name!r})",
                where=where(node),
                why="a network is one state of dataflow and holds no control flow yet",
                fix="rewrite this part without control flow: torch.where instead of if, an unrolled loop; "
                "an If is compiled where both branches are elementwise and declare the same fixed sizes",
            )
    version = model.opset_imports.get(node.domain)
    if version is None and node.domain in ("", "ai.onnx"):
        version = model.opset_imports.get("ai.onnx" if node.domain == "" else "")
    if version is None and not is_defined(node.op_type, node.domain):
        raise UnknownOperatorError(
            f"operator {node.op_type} is of domain {node.domain or 'ai.onnx'!r}, "
            "which the model does not import",
            where=where(node),
            why=f"the model's opset imports are {dict(model.opset_imports)}",
            fix="add the opset import of the domain",
        )
    try:
        return node_class(node.op_type, domain=node.domain, version=version)
    except UnknownOperatorError as error:
        raise UnknownOperatorError(error.what, where=where(node), why=error.why, fix=error.fix) from None


def refuse_torchs(node: ir.Node) -> None:
    """Refuse an operator of torch in a file: whoever wrote it could have any operator run, those that open
    files among them.

    Raises:
        UnknownOperatorError: the node is of the domain `daceml.aten`.
    """
    if node.domain in TORCH_DOMAINS:
        raise UnknownOperatorError(
            f"{node.op_type} is an operator of torch, which no ONNX file may name",
            where=where(node),
            why=f"nodes of the domain {node.domain} run in torch's dispatcher, and files come from anywhere",
            fix="compile the PyTorch module that the file was exported from",
        )


def refuse_sequences(node: ir.Node, cls: type[ONNXNode]) -> None:
    """Refuse a node whose results are no tensors by its schema, whatever inference makes of their sizes.

    Raises:
        UnheldValueError: the first such result.
    """
    formals = cls.schema.outputs
    for position, value in enumerate(node.outputs):
        types = formals[min(position, len(formals) - 1)].types if formals else frozenset[str]()
        if value.name and types and not any(kind.startswith("tensor(") for kind in types):
            kind = "an optional" if min(types).startswith("optional(") else "a sequence"
            raise UnheldValueError(
                f"{value.name!r} cannot be held in a network",
                where=where(node),
                why=f"it is {kind}, and a network holds dense tensors only",
                fix="rewrite this part of the model with tensors",
            )


def make_node(node: ir.Node, cls: type[ONNXNode]) -> tuple[ONNXNode, list[Binding], list[Binding]]:
    """Library node with its attributes and connectors, and what each connector reads or writes."""
    reads = _bind(node, cls, "inputs", [None if v is None else v.name for v in node.inputs])
    writes = _bind(node, cls, "outputs", [value.name for value in node.outputs])
    module_path, source = node_origin(node)
    made = cls(
        cls.op_type,
        inputs=[connector for connector, _ in reads],
        outputs=[connector for connector, _ in writes],
        onnx_name=node.name or "",
        module_path=module_path,
        source=source,
    )
    if (lowest := node.metadata_props.get("daceml.lowest_index", "")).removeprefix("-").isdecimal():
        made.lowest_index = int(lowest)
    if (padding := node.metadata_props.get("daceml.padding_row", "")).isdecimal():
        made.padding_row = int(padding)
    made.divided_by_counts = node.metadata_props.get("daceml.by_frequency") == "1"
    for attribute in node.attributes.values():
        made.set_attribute(attribute.name, _python_value(attribute, node))
    return made, reads, writes


def _bind(node: ir.Node, cls: type[ONNXNode], side: Any, names: list[str | None]) -> list[Binding]:
    connectors = cls.schema.connectors(side, [bool(name) for name in names])
    if connectors is None:
        formals = cls.schema.inputs if side == "inputs" else cls.schema.outputs
        raise InvalidNodeError(
            f"{cls.schema.title} takes at most {len(formals)} {side}",
            where=where(node),
            why=f"the node has {len(names)}: {', '.join(name or '(absent)' for name in names)}",
            fix="remove the surplus ones, or set the opset version that has them",
        )
    return [(c, name) for c, name in zip(connectors, names, strict=False) if c is not None and name]


_CONSTANT_KINDS = {
    "value": ir.AttributeType.TENSOR,
    "value_int": ir.AttributeType.INT,
    "value_ints": ir.AttributeType.INTS,
    "value_float": ir.AttributeType.FLOAT,
    "value_floats": ir.AttributeType.FLOATS,
    "value_string": ir.AttributeType.STRING,
    "value_strings": ir.AttributeType.STRINGS,
    "sparse_value": ir.AttributeType.SPARSE_TENSOR,
}


def constant_value(node: ir.Node) -> np.ndarray:
    """Value of a `Constant` node.

    Raises:
        ShapeError: strings or a sparse tensor, which no array holds.
        InvalidNodeError: not exactly one value.
    """
    values = {
        name: attribute for name, attribute in node.attributes.items() if name.startswith(("value", "sparse"))
    }
    if len(values) != 1:
        raise InvalidNodeError(
            "a Constant must have exactly one value attribute",
            where=where(node),
            why=f"it has {', '.join(values) or 'none'}",
            fix="keep one of value, value_float, value_int, value_floats, value_ints",
        )
    ((name, attribute),) = values.items()
    wanted = _CONSTANT_KINDS.get(name)
    if wanted is None or attribute.type != wanted or attribute.ref_attr_name:
        kind = wanted.name if wanted else "one that the operator has"
        held = "a reference" if attribute.ref_attr_name else attribute.type.name
        raise InvalidNodeError(
            f"attribute {name!r} of a Constant must be {kind}",
            where=where(node),
            why=f"it is {held}",
            fix="keep one of value, value_float, value_int, value_floats, value_ints",
        )
    match name:
        case "value":
            tensor = attribute.as_tensor()
            if tensor.dtype == ir.DataType.STRING:
                raise _no_array(node, "strings")
            return tensor.numpy()
        case "value_int" | "value_ints":
            return np.asarray(attribute.value, dtype=np.int64)
        case "value_float" | "value_floats":
            return np.asarray(attribute.value, dtype=np.float32)
        case _:
            raise _no_array(node, "a sparse tensor" if name.startswith("sparse") else "strings")


def _no_array(node: ir.Node, held: str) -> UnheldValueError:
    return UnheldValueError(
        f"the value of a Constant is {held}, which arrays cannot hold",
        where=where(node),
        why="a network holds dense tensors of numbers and booleans only",
        fix="make it a dense tensor of numbers",
    )


def _python_value(attribute: ir.Attr, node: ir.Node) -> Any:
    match attribute.type:
        case ir.AttributeType.FLOAT:
            return exact_float(attribute.value)
        case ir.AttributeType.FLOATS:
            return [exact_float(value) for value in attribute.value]
        case ir.AttributeType.TENSOR:
            if attribute.value.dtype == ir.DataType.STRING:
                raise _no_array(node, "strings")
            return attribute.value.numpy()
        case _:
            return attribute.value
