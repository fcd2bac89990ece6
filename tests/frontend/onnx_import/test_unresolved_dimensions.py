"""Shapes of models that declare no more than names of sizes, against ONNX Runtime for several sizes."""

from __future__ import annotations

import re

import numpy as np
import onnx
import onnx.parser
import onnxruntime
from onnx import numpy_helper

from daceml.errors import ExecutionError, ShapeError
from daceml.frontend.onnx_import.importer import import_source
from daceml.frontend.onnx_import.model_file import ModelSource, checked
from daceml.module.onnx_model import ONNXModel
from daceml.sdfg.network import Network
from tests.support.golden import golden, raises


def parse(graph: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["" : 20]>\n{graph}')


def shapes(graph: str) -> dict[str, str]:
    """Shape of every result, as text."""
    network: Network = import_source(checked(ModelSource(model=parse(graph), name="net")), name="net")
    return {name: ", ".join(map(str, network.sdfg.arrays[name].shape)) for name in network.outputs}


SHAPES = [
    ("y = MaxPool<kernel_shape = [3], strides = [2], pads = [1, 1]>(x)", "N, 2, int_floor(T + 1, 2)"),
    ("y = MaxPool<kernel_shape = [2], strides = [2], ceil_mode = 1>(x)", "N, 2, int_floor(T + 1, 2)"),
    ("y = AveragePool<kernel_shape = [3], strides = [3], auto_pad = \"SAME_LOWER\">(x)",
     "N, 2, int_floor(T + 2, 3)"),
    ("y = MaxPool<kernel_shape = [3], dilations = [2]>(x)", "N, 2, T - 4"),
    ("y = Concat<axis = 2>(x, x, x)", "N, 2, 3*T"),
    ("p = MaxPool<kernel_shape = [2], strides = [2]>(x) y = Concat<axis = 2>(x, p)",
     "N, 2, T + int_floor(T, 2)"),
    ("y = Pad(x, pads)", "N, 2, T + 3"),
    ("y = Slice(x, start, end, axis)", "N, 2, T - 2"),
    ("y = Resize<mode = \"nearest\">(x, , scales)", "N, 2, 3*T"),
    ("t = Concat<axis = 2>(x, x) y = Flatten<axis = 1>(t)", "N, 4*T"),
    ("t = Transpose<perm = [0, 2, 1]>(x) y = Reshape(t, flat)", "N, 2*T"),
    ("y = Expand(x, four)", "N, 4, 2, T"),
]  # fmt: skip


def test_dimensions_that_inference_leaves_open():
    inputs, outputs, nodes = zip(*(numbered(i, node) for i, (node, _) in enumerate(SHAPES)), strict=True)
    model = parse(f"""
        g ({", ".join(inputs)}) => ({", ".join(outputs)}) <int64[6] pads = {{0, 0, 1, 0, 0, 2}},
            int64[1] start = {{1}}, int64[1] end = {{-1}}, int64[1] axis = {{2}},
            float[3] scales = {{1.0, 1.0, 3.0}}, int64[2] flat = {{0, -1}}, int64[4] four = {{1, 4, 1, 1}}>
        {{ {" ".join(nodes)} }}""")
    for output in model.graph.output:
        output.type.tensor_type.ClearField("shape")
    network = import_source(checked(ModelSource(model=model, name="net")), name="net")
    for i, (node, shape) in enumerate(SHAPES):
        assert ", ".join(map(str, network.sdfg.arrays[f"y{i}"].shape)) == shape, node


def numbered(number: int, node: str) -> list[str]:
    """Input, output and nodes of a row, whose names of one letter have its number."""
    kind = "float[N, 1, 2, T]" if "four" in node else "float[N, 2, T]"
    return [re.sub(r"\b([ptxy])\b", rf"\g<1>{number}", text) for text in (f"{kind} x", "float y", node)]


def test_a_convolutional_network_of_any_size():
    model = parse("""
        g (float[N, 3, H, W] x) => (float[?, ?, ?, ?] y, float[?, ?, ?] f)
        <int64[8] pads = {0, 0, 1, 2, 0, 0, 0, 1}, int64[3] flat = {0, 4, -1}>
        { a = Conv<strides = [2, 2], pads = [1, 1, 1, 1]>(x, w)  b = Relu(a)
          c = MaxPool<kernel_shape = [3, 3], strides = [2, 2]>(b)  d = Pad(c, pads)
          f = Reshape(c, flat)  y = Concat<axis = 0>(d, d) }""".replace("flat = {", "flat = {", 1).replace(
        "<int64[8]", "<float[4, 3, 3, 3] w = {" + ", ".join(["0.5"] * 108) + "}, int64[8]", 1))  # fmt: skip
    weight = np.random.default_rng(0).standard_normal((4, 3, 3, 3), dtype=np.float32)
    next(t for t in model.graph.initializer if t.name == "w").CopyFrom(numpy_helper.from_array(weight, "w"))
    compiled = ONNXModel(model)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    for shape in ((2, 3, 20, 21), (1, 3, 15, 18), (3, 3, 32, 9)):
        x = np.random.default_rng(1).standard_normal(shape, dtype=np.float32)
        for ours, theirs in zip(compiled(x), session.run(None, {"x": x}), strict=True):
            # sums of 27 products, in another order
            np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


def test_a_window_larger_than_the_tensor_finds_nothing_or_is_refused():
    model = parse("g (float[N, 2, T] x) => (float y) { y = MaxPool<kernel_shape = [5], strides = [2]>(x) }")
    model.graph.output[0].type.tensor_type.ClearField("shape")
    compiled = ONNXModel(model)
    assert compiled(np.ones((1, 2, 5), dtype=np.float32)).shape == (1, 2, 1)
    for size in (4, 3, 2):
        assert compiled(np.ones((1, 2, size), dtype=np.float32)).shape == (1, 2, 0)
    with raises(ExecutionError, exact=False) as refusal:
        compiled(np.ones((1, 2, 1), dtype=np.float32))
    assert refusal.value.why == golden()


def test_sizes_that_follow_no_rule_are_left_open():
    """Every third position: a slice has no formula here, and three trials lie on no line."""
    graph = """
        g (float[N, T] x) => (float[?, ?] y)
        <int64[1] a = {0}, int64[1] b = {9223372036854775807}, int64[1] c = {1}, int64[1] d = {3}>
        { y = Slice(x, a, b, c, d) }"""
    with raises(ShapeError, "dimension 1", "'y'", "Slice", "dims="):
        shapes(graph)


def test_a_constant_that_nothing_reads_needs_no_shape():
    graph = "g (float[N, 2] x) => (float[N, 2] y) { dead = Constant<value_float = 5.0>() y = Relu(x) }"
    assert shapes(graph) == {"y": "N, 2"}
