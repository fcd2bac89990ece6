"""Changes of single fields of an ONNX model: what a faulty exporter, or somebody's editor, might write."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, cast

import onnx
from onnx import AttributeProto, TensorProto, helper

_INTEGERS = (0, 1, -1, 2, 3, -3, 7, 64, 2**31 - 1, 2**31, 2**62, -(2**63), 2**63 - 1)
_SIZES = (0, 1, 2, 5, -1, 2**31, 2**62)
_FLOATS = (0.0, -1.0, 1e-30, 1e30, float("inf"), float("nan"))
_TEXTS = (
    "", "N", "M", "2*N", "N/0", "9**9**9**9", "__import__('os')", "exec('1')", "N" * 5000, "NOTSET", "VALID",
    "SAME_UPPER", "reflect", "wrap", "tanh", "none", "ü", "a b", "(" * 300, "N-M", "lambda", "x[0]",
)  # fmt: skip
_NAMES = ("x", "y", "", "ghost", "int", "../up", "a\nb", "%s", "ü", "k_0", "__state")
_OPERATORS = (
    "Relu", "Add", "Sub", "Mul", "Div", "MatMul", "Concat", "Identity", "Reshape", "Softmax", "Sigmoid",
    "Exp", "Squeeze", "Unsqueeze", "Transpose", "ReduceMean", "ReduceSum", "Gather", "Slice", "Pad", "Expand",
    "Tile", "Flatten", "Shape", "Size", "NonZero", "TopK", "ArgMax", "Where", "Equal", "Cast",
    "ConstantOfShape", "Range", "EyeLike", "GatherND", "GatherElements", "ScatterND", "Upsample", "Resize",
    "LSTM", "GRU", "Loop", "If", "Scan", "NonMaxSuppression", "SequenceConstruct", "SplitToSequence",
    "Optional", "StringNormalizer", "Einsum", "Frob", "CumSum", "OneHot", "Trilu", "Dropout",
    "BatchNormalization", "ConvTranspose", "AveragePool", "LpPool", "Erf", "QuantizeLinear",
    "DequantizeLinear", "Unique", "Compress", "Hardmax", "LogSoftmax", "Mod", "Pow", "IsNaN", "RandomNormal",
    "RandomUniformLike", "Bernoulli", "Multinomial", "DepthToSpace", "SpaceToDepth", "Col2Im",
)  # fmt: skip

Mutation = Callable[[onnx.ModelProto, random.Random], None]


def some_tensor(model: onnx.ModelProto, rng: random.Random) -> TensorProto:
    return rng.choice(list(model.graph.initializer))


def _node(model: onnx.ModelProto, rng: random.Random) -> onnx.NodeProto:
    return rng.choice(list(model.graph.node))


def _attribute(model: onnx.ModelProto, rng: random.Random) -> AttributeProto:
    nodes = [node for node in model.graph.node if node.attribute]
    return rng.choice(list(rng.choice(nodes).attribute))


def _value(model: onnx.ModelProto, rng: random.Random) -> onnx.ValueInfoProto:
    return rng.choice([*model.graph.input, *model.graph.output])


def tensor_dims(model: onnx.ModelProto, rng: random.Random) -> None:
    tensor = some_tensor(model, rng)
    dims = list(tensor.dims)
    match rng.randrange(4):
        case 0:
            dims.append(rng.choice(_SIZES))
        case 1:
            dims.reverse()
        case 2:
            dims = []
        case _:
            dims[rng.randrange(len(dims))] = rng.choice(_SIZES)
    tensor.dims[:] = dims


def tensor_type(model: onnx.ModelProto, rng: random.Random) -> None:
    some_tensor(model, rng).data_type = rng.choice([*range(30), -1, 1000])


def tensor_data(model: onnx.ModelProto, rng: random.Random) -> None:
    tensor = some_tensor(model, rng)
    match rng.randrange(4):
        case 0:
            tensor.raw_data = tensor.raw_data[: rng.randrange(len(tensor.raw_data))]
        case 1:
            tensor.raw_data += rng.randbytes(rng.randrange(1, 9))
        case 2:
            tensor.float_data.extend([1.0, 2.0])
        case _:
            tensor.raw_data = rng.randbytes(len(tensor.raw_data))


def tensor_name(model: onnx.ModelProto, rng: random.Random) -> None:
    some_tensor(model, rng).name = rng.choice([*_NAMES, some_tensor(model, rng).name])


def tensor_gone(model: onnx.ModelProto, rng: random.Random) -> None:
    del model.graph.initializer[rng.randrange(len(model.graph.initializer))]


def tensor_twice(model: onnx.ModelProto, rng: random.Random) -> None:
    model.graph.initializer.add().CopyFrom(some_tensor(model, rng))


def tensor_sparse(model: onnx.ModelProto, rng: random.Random) -> None:
    tensor = some_tensor(model, rng)
    sparse = model.graph.sparse_initializer.add(dims=tensor.dims)
    sparse.values.CopyFrom(tensor)
    model.graph.initializer.remove(tensor)


def tensor_strings(model: onnx.ModelProto, rng: random.Random) -> None:
    tensor = some_tensor(model, rng)
    name, count = tensor.name, rng.randrange(4)
    tensor.CopyFrom(helper.make_tensor(name, TensorProto.STRING, [count], cast(Any, [b"a\xff"] * count)))


def small_integers(model: onnx.ModelProto, rng: random.Random) -> None:
    tensors = [t for t in model.graph.initializer if t.data_type == TensorProto.INT64]
    tensor = rng.choice(tensors)
    count = rng.choice([len(tensor.raw_data) // 8, rng.randrange(4)])
    name = tensor.name
    tensor.CopyFrom(
        helper.make_tensor(name, TensorProto.INT64, [count], [rng.choice(_INTEGERS) for _ in range(count)])
    )


def attribute_value(model: onnx.ModelProto, rng: random.Random) -> None:
    attribute = _attribute(model, rng)
    match attribute.type:
        case AttributeProto.INT:
            attribute.i = rng.choice(_INTEGERS)
        case AttributeProto.FLOAT:
            attribute.f = rng.choice(_FLOATS)
        case AttributeProto.STRING:
            attribute.s = rng.choice([text.encode() for text in _TEXTS] + [b"\xff\xfe"])
        case AttributeProto.INTS:
            values = list(attribute.ints)
            values[rng.randrange(len(values))] = rng.choice(_INTEGERS)
            attribute.ints[:] = rng.choice([values, values[:-1], [*values, 1], []])
        case _:
            attribute.t.dims[:] = [rng.choice(_SIZES)]


def attribute_kind(model: onnx.ModelProto, rng: random.Random) -> None:
    attribute = _attribute(model, rng)
    value: Any = rng.choice([1, 2.5, "text", [1, 2], [0.5], ["a"], helper.make_tensor("", 1, [1], [1.0])])
    attribute.CopyFrom(helper.make_attribute(attribute.name, value))


def attribute_type(model: onnx.ModelProto, rng: random.Random) -> None:
    _attribute(model, rng).type = cast(Any, rng.randrange(15))


def attribute_gone(model: onnx.ModelProto, rng: random.Random) -> None:
    node = rng.choice([node for node in model.graph.node if node.attribute])
    del node.attribute[rng.randrange(len(node.attribute))]


def attribute_more(model: onnx.ModelProto, rng: random.Random) -> None:
    node = _node(model, rng)
    schema = onnx.defs.get_schema(node.op_type) if onnx.defs.has(node.op_type) else None
    names = [*(schema.attributes if schema else ()), "frob", *(a.name for a in node.attribute)]
    value: Any = rng.choice([rng.choice(_INTEGERS), rng.choice(_FLOATS), [1, 1], rng.choice(_TEXTS)])
    node.attribute.append(helper.make_attribute(rng.choice(names), value))


def attribute_reference(model: onnx.ModelProto, rng: random.Random) -> None:
    _attribute(model, rng).ref_attr_name = "outer"


def node_operator(model: onnx.ModelProto, rng: random.Random) -> None:
    _node(model, rng).op_type = rng.choice(_OPERATORS)


def node_plain_operator(model: onnx.ModelProto, rng: random.Random) -> None:
    node = _node(model, rng)
    node.op_type = rng.choice(_OPERATORS)
    del node.attribute[:]


def node_domain(model: onnx.ModelProto, rng: random.Random) -> None:
    _node(model, rng).domain = rng.choice(
        ["ai.onnx", "ai.onnx.ml", "com.microsoft", "local", "frob", "daceml"]
    )


def node_gone(model: onnx.ModelProto, rng: random.Random) -> None:
    del model.graph.node[rng.randrange(len(model.graph.node))]


def node_twice(model: onnx.ModelProto, rng: random.Random) -> None:
    model.graph.node.add().CopyFrom(_node(model, rng))


def node_order(model: onnx.ModelProto, rng: random.Random) -> None:
    nodes = list(model.graph.node)
    rng.shuffle(nodes)
    copies = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
    del model.graph.node[:]
    model.graph.node.extend(copies)


def node_input(model: onnx.ModelProto, rng: random.Random) -> None:
    node = _node(model, rng)
    every = [name for n in model.graph.node for name in [*n.input, *n.output]]
    node.input[rng.randrange(len(node.input))] = rng.choice([*every, *_NAMES])


def node_output(model: onnx.ModelProto, rng: random.Random) -> None:
    node = _node(model, rng)
    every = [name for n in model.graph.node for name in [*n.input, *n.output]]
    node.output[rng.randrange(len(node.output))] = rng.choice([*every, *_NAMES])


def node_arity(model: onnx.ModelProto, rng: random.Random) -> None:
    node = _node(model, rng)
    side = rng.choice([node.input, node.output])
    if rng.random() < 0.5:
        del side[rng.randrange(len(side))]
    else:
        side.append(rng.choice([*_NAMES, side[0]]))


def node_body(model: onnx.ModelProto, rng: random.Random) -> None:
    body = onnx.GraphProto()
    body.CopyFrom(model.graph)
    _node(model, rng).attribute.append(helper.make_attribute(rng.choice(["body", "then_branch"]), body))


def node_more(model: onnx.ModelProto, rng: random.Random) -> None:
    """An operator on values that are there; its result is one more output, of undeclared type."""
    domain_versions = {entry.domain: entry.version for entry in model.opset_import}
    name = rng.choice(_OPERATORS)
    schema = onnx.defs.get_schema(name, domain_versions[""], "")
    values = [value for node in model.graph.node for value in [*node.input, *node.output] if value]
    integers = [tensor.name for tensor in model.graph.initializer if tensor.data_type == TensorProto.INT64]
    inputs: list[str] = []
    for formal in schema.inputs:
        optional = formal.option != onnx.defs.OpSchema.FormalParameterOption.Single
        if optional and rng.random() < 0.5:
            break
        numbers = "tensor(float)" not in formal.types and rng.random() < 0.8
        if numbers and rng.random() < 0.7:
            held = [rng.choice((0, 1, 1, 2, 2, -1, 3)) for _ in range(rng.choice((1, 1, 2, 3, 4)))]
            tensor = helper.make_tensor(f"more_{len(inputs)}", TensorProto.INT64, [len(held)], held)
            model.graph.initializer.append(tensor)
            inputs.append(tensor.name)
        else:
            inputs.append(rng.choice(integers if numbers and integers else values))
    attributes: dict[str, Any] = {}
    for attribute in schema.attributes.values():
        if attribute.required or rng.random() < 0.4:
            attributes[attribute.name] = _small_value(attribute.type, rng)
    attributes = {key: value for key, value in attributes.items() if value is not None}
    outputs = [f"more_out{i}" for i in range(rng.choice((1, 1, 1, max(1, len(schema.outputs)))))]
    model.graph.node.append(helper.make_node(name, inputs, outputs, **attributes))
    model.graph.output.extend(helper.make_value_info(output, onnx.TypeProto()) for output in outputs)


def _small_value(kind: Any, rng: random.Random) -> Any:
    kinds = onnx.defs.OpSchema.AttrType
    match kind:
        case kinds.INT:
            return rng.choice((0, 1, 1, 2, -1, 3, 7))
        case kinds.INTS:
            return [rng.choice((0, 1, 1, 2, -1, 3)) for _ in range(rng.choice((1, 2, 2, 3, 4)))]
        case kinds.FLOAT:
            return rng.choice((0.0, 0.5, 1.0, -1.5))
        case kinds.STRING:
            return rng.choice(
                ("linear", "nearest", "SAME_UPPER", "constant", "edge", "reflect", "none", "tanh", "mul")
            )
        case kinds.TENSOR:
            return helper.make_tensor("", rng.choice((1, 7)), [1], [2])
        case _:
            return None


def small_attribute(model: onnx.ModelProto, rng: random.Random) -> None:
    attribute = _attribute(model, rng)
    kinds = onnx.defs.OpSchema.AttrType
    kind = {AttributeProto.INT: kinds.INT, AttributeProto.INTS: kinds.INTS, AttributeProto.FLOAT: kinds.FLOAT}
    value = _small_value(kind.get(attribute.type, kinds.STRING), rng)
    attribute.CopyFrom(helper.make_attribute(attribute.name, value))


def smaller_integers(model: onnx.ModelProto, rng: random.Random) -> None:
    tensor = rng.choice([t for t in model.graph.initializer if t.data_type == TensorProto.INT64])
    count, name = len(tensor.raw_data) // 8, tensor.name
    values = [rng.choice((-3, -2, -1, 0, 1, 2, 3, 4, 5)) for _ in range(count)]
    tensor.CopyFrom(helper.make_tensor(name, TensorProto.INT64, list(tensor.dims), values))


def near_opset(model: onnx.ModelProto, rng: random.Random) -> None:
    model.opset_import[0].version = rng.randrange(7, 27)


def value_shape(model: onnx.ModelProto, rng: random.Random) -> None:
    shape = _value(model, rng).type.tensor_type.shape
    match rng.randrange(5):
        case 0:
            shape.dim.add().dim_value = rng.choice(_SIZES)
        case 1:
            del shape.dim[rng.randrange(len(shape.dim))]
        case 2:
            shape.dim[rng.randrange(len(shape.dim))].dim_param = rng.choice(_TEXTS)
        case 3:
            shape.dim[rng.randrange(len(shape.dim))].Clear()
        case _:
            shape.dim[rng.randrange(len(shape.dim))].dim_value = rng.choice(_SIZES)


def value_type(model: onnx.ModelProto, rng: random.Random) -> None:
    _value(model, rng).type.tensor_type.elem_type = rng.choice([*range(30), 1000, -1])


def value_kind(model: onnx.ModelProto, rng: random.Random) -> None:
    value = _value(model, rng)
    tensor = onnx.TypeProto.FromString(value.type.SerializeToString())
    makers = (
        helper.make_sequence_type_proto, helper.make_optional_type_proto,
        lambda held: helper.make_map_type_proto(TensorProto.STRING, held),
        lambda held: helper.make_sparse_tensor_type_proto(1, [2]), lambda held: onnx.TypeProto(),
    )  # fmt: skip
    value.type.CopyFrom(rng.choice(makers)(tensor))


def value_name(model: onnx.ModelProto, rng: random.Random) -> None:
    _value(model, rng).name = rng.choice([*_NAMES, _value(model, rng).name])


def value_info(model: onnx.ModelProto, rng: random.Random) -> None:
    names = [name for node in model.graph.node for name in node.output]
    shape = [rng.choice([*_SIZES, "N", "K"]) for _ in range(rng.randrange(5))]
    model.graph.value_info.append(
        helper.make_tensor_value_info(rng.choice(names), rng.choice([1, 1, 7]), shape)
    )


def value_gone(model: onnx.ModelProto, rng: random.Random) -> None:
    side = rng.choice([model.graph.input, model.graph.output])
    del side[rng.randrange(len(side))]


def value_more(model: onnx.ModelProto, rng: random.Random) -> None:
    names = [name for node in model.graph.node for name in [*node.input, *node.output]]
    side = rng.choice([model.graph.input, model.graph.output])
    side.append(helper.make_tensor_value_info(rng.choice([*names, *_NAMES]), 1, [rng.choice(_SIZES)]))


def opset(model: onnx.ModelProto, rng: random.Random) -> None:
    model.opset_import[0].version = rng.choice([*range(1, 30), 0, -1, 2**40])


def opset_list(model: onnx.ModelProto, rng: random.Random) -> None:
    match rng.randrange(3):
        case 0:
            del model.opset_import[:]
        case 1:
            model.opset_import.add(
                domain=rng.choice(["", "ai.onnx", "frob"]), version=rng.choice([1, 13, 99])
            )
        case _:
            model.opset_import[0].domain = rng.choice(["ai.onnx", "ai.onnx.ml", "frob"])


def ir_version(model: onnx.ModelProto, rng: random.Random) -> None:
    model.ir_version = rng.choice([0, 1, 3, 7, 99, -1])


def local_functions(model: onnx.ModelProto, rng: random.Random) -> None:
    count = rng.choice([1, 3, 40])
    for i in range(count):
        callee = (i + 1) % count if rng.random() < 0.5 else i + 1
        calls = [helper.make_node(f"F{callee}", [name], [out], domain="local") for name, out in ("ab", "bc")]
        model.functions.append(
            helper.make_function("local", f"F{i}", ["a"], ["c"], calls, [helper.make_opsetid("local", 1)])
        )
    node = _node(model, rng)
    node.op_type, node.domain = "F0", "local"
    model.opset_import.add(domain="local", version=1)


def metadata(model: onnx.ModelProto, rng: random.Random) -> None:
    model.metadata_props.add(key="daceml.parameters", value=rng.choice(['["w1"]', "[", "{}", "[1]"]))
    model.metadata_props.add(key="daceml.buffer_mutations", value=rng.choice(['{"y": "w1"}', "{}", "[[]]"]))


FIELDS: tuple[Mutation, ...] = (
    tensor_dims, tensor_type, tensor_data, tensor_name, tensor_gone, tensor_twice, tensor_sparse,
    tensor_strings, small_integers, attribute_value, attribute_kind, attribute_type, attribute_gone,
    attribute_more, attribute_reference, node_operator, node_plain_operator, node_domain, node_gone,
    node_twice, node_order, node_input, node_output, node_arity, node_body, value_shape, value_type,
    value_kind, value_name, value_info, value_gone, value_more, opset, opset_list, ir_version,
    local_functions, metadata,
    # what more often leaves a model that runs
    *(node_more, small_attribute, smaller_integers, near_opset) * 4, node_operator, node_input, value_shape,
)  # fmt: skip
