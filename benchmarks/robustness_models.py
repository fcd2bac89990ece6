"""Small ONNX models of the kinds that people have, to be damaged: each runs in onnxruntime and in daceml."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64


def _weight(name: str, *shape: int, seed: int) -> TensorProto:
    values = np.random.default_rng(seed).standard_normal(shape, dtype=np.float32) / 2
    return numpy_helper.from_array(values, name)


def _ints(name: str, *values: int) -> TensorProto:
    return numpy_helper.from_array(np.array(values, dtype=np.int64), name)


def _model(
    name: str,
    opset: int,
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[tuple[str, int, Sequence[int | str]]],
    outputs: Sequence[tuple[str, int, Sequence[int | str]]],
    data: Sequence[TensorProto],
    functions: Sequence[onnx.FunctionProto] = (),
) -> onnx.ModelProto:
    graph = helper.make_graph(
        list(nodes),
        name,
        [helper.make_tensor_value_info(*value) for value in inputs],
        [helper.make_tensor_value_info(*value) for value in outputs],
        list(data),
    )
    opsets = [helper.make_opsetid("", opset), *(helper.make_opsetid(f.domain, 1) for f in functions)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10, functions=list(functions))


def convolution() -> onnx.ModelProto:
    """Two convolutions with batch norm, pooling and a classifier, as torchvision's exports are."""
    nodes = [
        helper.make_node(
            "Conv", ["x", "w1", "b1"], ["c1"], name="conv1", kernel_shape=[3, 3], pads=[1, 1, 1, 1]
        ),
        helper.make_node("BatchNormalization", ["c1", "scale", "bias", "mean", "var"], ["n1"], epsilon=1e-5),
        helper.make_node("Relu", ["n1"], ["r1"]),
        helper.make_node("MaxPool", ["r1"], ["p1"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node(
            "Conv", ["p1", "w2"], ["c2"], name="conv2", group=2, strides=[2, 2], dilations=[1, 1]
        ),
        helper.make_node("LeakyRelu", ["c2"], ["r2"], alpha=0.1),
        helper.make_node("GlobalAveragePool", ["r2"], ["g"]),
        helper.make_node("Flatten", ["g"], ["f"], axis=1),
        helper.make_node("Gemm", ["f", "w3", "b3"], ["y"], transB=1, alpha=0.5),
    ]
    data = [
        _weight("w1", 4, 3, 3, 3, seed=1), _weight("b1", 4, seed=2), _weight("scale", 4, seed=3),
        _weight("bias", 4, seed=4), _weight("mean", 4, seed=5),
        numpy_helper.from_array(np.array([0.5, 1, 2, 1.5], dtype=np.float32), "var"),
        _weight("w2", 4, 2, 2, 2, seed=6), _weight("w3", 5, 4, seed=7), _weight("b3", 5, seed=8),
    ]  # fmt: skip
    return _model("conv", 17, nodes, [("x", FLOAT, [1, 3, 8, 8])], [("y", FLOAT, [1, 5])], data)


def transformer() -> onnx.ModelProto:
    """A pre-norm block of opset 23: LayerNormalization, Attention, Gelu."""
    nodes = [
        helper.make_node("LayerNormalization", ["x", "g1", "h1"], ["l1"], axis=-1, epsilon=1e-5),
        helper.make_node("MatMul", ["l1", "wqkv"], ["qkv"]),
        helper.make_node("Split", ["qkv"], ["q", "k", "v"], axis=-1, num_outputs=3),
        helper.make_node("Attention", ["q", "k", "v"], ["a"], q_num_heads=2, kv_num_heads=2),
        helper.make_node("MatMul", ["a", "wo"], ["o"]),
        helper.make_node("Add", ["o", "x"], ["s1"]),
        helper.make_node("LayerNormalization", ["s1", "g2"], ["l2"]),
        helper.make_node("MatMul", ["l2", "w1"], ["m1"]),
        helper.make_node("Gelu", ["m1"], ["e"], approximate="tanh"),
        helper.make_node("MatMul", ["e", "w2"], ["m2"]),
        helper.make_node("Add", ["m2", "s1"], ["y"]),
    ]
    data = [
        _weight("g1", 8, seed=1), _weight("h1", 8, seed=2), _weight("wqkv", 8, 24, seed=3),
        _weight("wo", 8, 8, seed=4), _weight("g2", 8, seed=5), _weight("w1", 8, 16, seed=6),
        _weight("w2", 16, 8, seed=7),
    ]  # fmt: skip
    return _model("transformer", 23, nodes, [("x", FLOAT, [2, 4, 8])], [("y", FLOAT, [2, 4, 8])], data)


def embedding() -> onnx.ModelProto:
    """Token ids to probabilities, with a mask that is computed from the ids; opset 13."""
    nodes = [
        helper.make_node("Gather", ["table", "ids"], ["e"], axis=0),
        helper.make_node("Constant", [], ["pad"], value=_ints("", 0)),
        helper.make_node("Equal", ["ids", "pad"], ["m"]),
        helper.make_node("Cast", ["m"], ["mf"], to=FLOAT),
        helper.make_node("Unsqueeze", ["mf", "last"], ["mu"]),
        helper.make_node("Sub", ["e", "mu"], ["d"]),
        helper.make_node("ReduceSum", ["d", "axes"], ["r"], keepdims=0),
        helper.make_node("Clip", ["r", "low"], ["c"]),
        helper.make_node("Softmax", ["c"], ["y"], axis=-1),
    ]
    data = [
        _weight("table", 11, 6, seed=1), _ints("last", 2), _ints("axes", 1),
        numpy_helper.from_array(np.array(-1, dtype=np.float32), "low"),
    ]  # fmt: skip
    return _model("embedding", 13, nodes, [("ids", INT64, [2, 5])], [("y", FLOAT, [2, 6])], data)


def dynamic() -> onnx.ModelProto:
    """Named dimensions, and a reshape whose shape is computed; opset 18."""
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Gather", ["s", "first"], ["n"], axis=0),
        helper.make_node("Concat", ["n", "rest"], ["shape"], axis=0),
        helper.make_node("Reshape", ["x", "shape"], ["flat"]),
        helper.make_node("Transpose", ["x"], ["t"], perm=[0, 2, 1]),
        helper.make_node("Slice", ["t", "starts", "ends", "axes"], ["cut"]),
        helper.make_node("ReduceMean", ["cut", "axes2"], ["m"], keepdims=0),
        helper.make_node("Sigmoid", ["flat"], ["z"]),
        helper.make_node("Concat", ["m", "m"], ["y"], axis=1),
    ]
    data = [
        _ints("first", 0), _ints("rest", -1), _ints("starts", 1), _ints("ends", 3), _ints("axes", 1),
        _ints("axes2", 2),
    ]  # fmt: skip
    outputs: list[tuple[str, int, Sequence[int | str]]] = [("y", FLOAT, ["N", 4]), ("z", FLOAT, ["N", "4*T"])]
    return _model("dynamic", 18, nodes, [("x", FLOAT, ["N", "T", 4])], outputs, data)


def external() -> onnx.ModelProto:
    """A perceptron that `save` gives two data files, one of them in a folder."""
    nodes = [
        helper.make_node("MatMul", ["x", "w1"], ["h"]),
        helper.make_node("Add", ["h", "b1"], ["i"]),
        helper.make_node("Tanh", ["i"], ["j"]),
        helper.make_node("MatMul", ["j", "w2"], ["y"]),
    ]
    data = [_weight("w1", 8, 160, seed=1), _weight("b1", 160, seed=2), _weight("w2", 160, 8, seed=3)]
    return _model("external", 21, nodes, [("x", FLOAT, ["N", 8])], [("y", FLOAT, ["N", 8])], data)


def legacy() -> onnx.ModelProto:
    """Opset 11, which is converted: operators with attributes that are inputs today."""
    nodes = [
        helper.make_node("Unsqueeze", ["x"], ["u"], axes=[0]),
        helper.make_node("ReduceSum", ["u"], ["r"], axes=[2], keepdims=1),
        helper.make_node("Softmax", ["r"], ["p"], axis=1),
        helper.make_node("Squeeze", ["p"], ["q"], axes=[0, 2]),
        helper.make_node("Split", ["q"], ["a", "b"], axis=0, split=[2, 4]),
        helper.make_node("Pad", ["a", "pads"], ["y"], mode="constant"),
        helper.make_node("Neg", ["b"], ["z"]),
    ]
    outputs: list[tuple[str, int, Sequence[int | str]]] = [("y", FLOAT, [5]), ("z", FLOAT, [4])]
    return _model("legacy", 11, nodes, [("x", FLOAT, [6, 3])], outputs, [_ints("pads", 1, 2)])


def functions() -> onnx.ModelProto:
    """A local function that is called twice, as PyTorch's exporter writes them."""
    swish = helper.make_function(
        "local", "Swish", ["a"], ["b"],
        [helper.make_node("Sigmoid", ["a"], ["s"]), helper.make_node("Mul", ["a", "s"], ["b"])],
        [helper.make_opsetid("", 20)],
    )  # fmt: skip
    nodes = [
        helper.make_node("Swish", ["x"], ["h"], domain="local"),
        helper.make_node("Mul", ["h", "w"], ["i"]),
        helper.make_node("Swish", ["i"], ["y"], domain="local"),
    ]
    info = ("x", FLOAT, [3, 4])
    return _model("functions", 20, nodes, [info], [("y", FLOAT, [3, 4])], [_weight("w", 4, seed=1)], [swish])


MODELS: dict[str, Callable[[], onnx.ModelProto]] = {
    function.__name__: function
    for function in (convolution, transformer, embedding, dynamic, external, legacy, functions)
}


def save(model: onnx.ModelProto, folder: Path) -> Path:
    """Write a model as `model.onnx`; the data of `external` goes to `w.bin` and `more/w2.bin`."""
    path = folder / "model.onnx"
    if model.graph.name == "external":
        (folder / "more").mkdir(exist_ok=True)
        offset = 0
        for tensor in model.graph.initializer:
            own = tensor.name == "w2"
            location = "more/w2.bin" if own else "w.bin"
            data = tensor.raw_data
            with (folder / location).open("wb" if own or not offset else "ab") as stream:
                stream.write(data)
            tensor.ClearField("raw_data")
            tensor.data_location = TensorProto.EXTERNAL
            entries = {"location": location, "offset": str(0 if own else offset), "length": str(len(data))}
            for key, value in entries.items():
                tensor.external_data.add(key=key, value=value)
            offset += 0 if own else len(data)
    path.write_bytes(model.SerializeToString())
    return path
