"""ONNX Runtime as the implementation of last resort: any operator of the standard, one node at a time, no
copy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from daceml.config import config
from daceml.errors import NoImplementationError
from daceml.onnx_ops.registry import EVERY_OPERATOR, implements
from daceml.onnx_ops.schema.element_types import BY_DACE_TYPE
from daceml.onnx_ops.schema.operands import operands
from daceml.sdfg.external import FallbackCall
from daceml.sdfg.sizes import size

if TYPE_CHECKING:
    import onnx

    from daceml.onnx_ops.schema.node import ONNXNode
    from daceml.onnx_ops.schema.schema import Kind
    from daceml.sdfg.network import Network

# The oldest opset that the importer lets through, and an IR version that every supported ONNX Runtime reads
_LOWEST_OPSET = 13
_IR_VERSION = 10


def _refusal() -> str | None:
    return "disabled by DACEML_FALLBACK=none" if config().fallback == "none" else None


@implements(EVERY_OPERATOR, kind="onnxruntime", name="onnxruntime", when=_refusal, devices=("cpu",))
@implements(
    EVERY_OPERATOR,
    domain="ai.onnx.ml",
    kind="onnxruntime",
    name="onnxruntime",
    when=_refusal,
    devices=("cpu",),
)
def fallback_call(node: ONNXNode, network: Network) -> FallbackCall:
    """The call of a node, checked by opening a session for it.

    Raises:
        NoImplementationError: ONNX Runtime has no kernel for these types.
    """
    model = single_node_model(node, network)
    try:
        _open(model)
    except Exception as error:
        raise NoImplementationError(
            f"no implementation of {node.schema.title} can run here",
            where=node.where(),
            why=f"onnxruntime: {str(error).splitlines()[0]}",
            fix=f'add @implements("{node.op_type}") under daceml/onnx_ops/, or use other element types',
        ) from error
    used = operands(node, network.state, network.sdfg)
    return FallbackCall(
        operator=node.op_type,
        model=model.SerializeToString(),
        inputs=tuple(dict.fromkeys(used.read_arrays())),
        outputs=used.written_arrays(),
    )


def single_node_model(node: ONNXNode, network: Network) -> onnx.ModelProto:
    """A model of one node; its values are named as the network's arrays."""
    from onnx import helper

    used = operands(node, network.state, network.sdfg)
    graph = helper.make_graph(
        [node_proto(node, _actuals(used.inputs.values()), _actuals(used.outputs.values()))],
        node.op_type,
        [_value(a, network) for a in dict.fromkeys(used.read_arrays())],
        [_value(a, network) for a in used.written_arrays()],
    )
    return helper.make_model(graph, opset_imports=[single_node_opset(node)], ir_version=_IR_VERSION)


def node_proto(node: ONNXNode, inputs: Sequence[str], outputs: Sequence[str]) -> onnx.NodeProto:
    """A node in ONNX's form, with these names of values."""
    from onnx import helper

    made = helper.make_node(node.op_type, inputs, outputs, domain=node.domain)
    made.attribute.extend(
        _attribute(name, node.schema.attributes[name].kind, value)
        for name, value in node.attribute_values().items()
        if value is not None
    )
    return made


def single_node_opset(node: ONNXNode) -> onnx.OperatorSetIdProto:
    """The opset of a model that has only this node."""
    from onnx import helper

    version = node.since_version if node.domain else max(node.since_version, _LOWEST_OPSET)
    return helper.make_opsetid(node.domain, version)


def _attribute(name: str, kind: Kind, value: Any) -> onnx.AttributeProto:
    """Of the kind that the schema says: a value may look like one of another kind, an empty list like any."""
    from onnx import AttributeProto, helper, numpy_helper

    if kind == "tensor":
        value = numpy_helper.from_array(value)
    elif kind == "float":
        value = float(value)
    code = AttributeProto.AttributeType.Value(kind.upper())
    return helper.make_attribute(name, value, attr_type=code)


def _actuals(sides: Any) -> list[str]:
    names: list[str] = []
    for side in sides:
        names += list(side) if isinstance(side, tuple) else ["" if side is None else side]
    while names and not names[-1]:
        names.pop()
    return names


def _value(array: str, network: Network) -> onnx.ValueInfoProto:
    from onnx import helper

    desc = network.sdfg.arrays[array]
    extents = [size(s) for s in desc.shape]
    shape: Sequence[Any] = [s if isinstance(s, int) else str(s) for s in extents]
    code = BY_DACE_TYPE[desc.dtype].onnx_code
    return helper.make_tensor_value_info(array, code, [] if array in network.scalars else shape)


def _open(model: onnx.ModelProto) -> None:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
