"""Operators mean what the model's opset says, from the oldest that is converted to the newest.

Each opset is one graph of many operators, in the form that they have there, against ONNX Runtime.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest
import torch

from daceml.errors import UnknownOperatorError
from daceml.module.onnx_model import ONNXModel
from tests.support.golden import raises
from tests.support.sampling import sampled

NEWEST = onnx.defs.onnx_opset_version()

# First and last opset of a form, and a node that writes `y`; x: [2, 3, 4, 5], m: [6, 4], positive: [2, 3].
FORMS: list[tuple[int, int, str]] = [
    (7, 10, "y = Clip<min = -0.5, max = 0.5>(x)"),
    (11, NEWEST, "y = Clip(x, low, high)"),
    (11, NEWEST, "y = Clip(x, , high)"),
    (7, 12, "y = Softmax<axis = 1>(x)"),  # over all later dimensions at once
    (13, NEWEST, "y = Softmax<axis = 1>(x)"),
    (7, 12, "y = LogSoftmax(m)"),
    (13, NEWEST, "y = LogSoftmax(x)"),
    (7, 12, "y = Hardmax<axis = 1>(m)"),
    (7, 12, "y = ReduceSum<axes = [1, 3], keepdims = 0>(x)"),
    (13, NEWEST, "y = ReduceSum<keepdims = 0>(x, axes13)"),
    (13, NEWEST, "y = ReduceSum<noop_with_empty_axes = 1>(x)"),
    (7, 17, "y = ReduceMean<axes = [-1]>(x)"),
    (18, NEWEST, "y = ReduceMean(x, last)"),
    (7, 17, "y = ReduceMax<axes = [1], keepdims = 0>(x)"),
    (18, NEWEST, "y = ReduceMax<keepdims = 0>(x, one)"),
    (7, 17, "y = ReduceL2<axes = [2, 3]>(x)"),
    (18, NEWEST, "y = ReduceL2(x, axes23)"),
    (7, 17, "y = ReduceLogSumExp<axes = [1], keepdims = 0>(x)"),
    (18, NEWEST, "y = ReduceLogSumExp<keepdims = 0>(x, one)"),
    (7, 17, "y = ReduceProd(m)"),
    (7, 12, "y, y2 = Split<axis = 2, split = [1, 3]>(x)"),
    (13, NEWEST, "y, y2 = Split<axis = 2>(x, parts)"),
    (7, 17, "y, y2 = Split<axis = 0>(m)"),
    (18, NEWEST, "y, y2, y3 = Split<axis = -1, num_outputs = 3>(x)"),  # the last part is smaller
    (7, 12, "y = Squeeze<axes = [0]>(row)"),
    (13, NEWEST, "y = Squeeze(row, zero)"),
    (13, NEWEST, "y = Squeeze(row)"),
    (7, 12, "y = Unsqueeze<axes = [0, 3]>(m)"),
    (13, NEWEST, "y = Unsqueeze(m, axes03)"),
    (7, 10, "y = Pad<mode = \"reflect\", pads = [0, 0, 1, 2, 0, 0, 0, 1]>(x)"),
    (11, NEWEST, "y = Pad<mode = \"reflect\">(x, pads)"),
    (11, NEWEST, "y = Pad(x, pads, high)"),
    (18, NEWEST, "y = Pad<mode = \"edge\">(x, two_pads, , axes03)"),
    (7, 9, "y = Slice<axes = [1, 3], starts = [1, -4], ends = [3, 100]>(x)"),
    (10, NEWEST, "y = Slice(x, starts, ends, axes13, steps)"),
    (7, 9, "y, y2 = TopK<axis = 1, k = 2>(m)"),
    (10, 10, "y, y2 = TopK<axis = 1>(m, two)"),
    (11, NEWEST, "y, y2 = TopK<axis = 1, largest = 0>(m, two)"),
    (9, 9, "y = Upsample<mode = \"nearest\">(x, scales)"),
    (7, 8, "y = Upsample<mode = \"nearest\", scales = [1.0, 1.0, 2.0, 3.0]>(x)"),
    (10, 10, "y = Resize<mode = \"nearest\">(x, scales)"),
    (9, 9, "y = Upsample<mode = \"linear\">(x, scales)"),  # without half pixels
    (10, 10, "y = Resize<mode = \"linear\">(x, uneven)"),
    (10, 10, "y = Resize<mode = \"nearest\">(x, uneven)"),
    (10, 10, "y = Resize<mode = \"nearest\">(x, smaller)"),
    (13, NEWEST, "y = Resize<mode = \"nearest\", coordinate_transformation_mode = \"asymmetric\","
                 " nearest_mode = \"floor\">(x, , scales)"),
    (13, NEWEST, "y = Resize<mode = \"linear\">(x, , , sizes)"),
    (18, NEWEST, "y = Resize<mode = \"linear\", axes = [2, 3], antialias = 0>(x, , scales2)"),
    (19, NEWEST, "y = Resize<mode = \"nearest\", coordinate_transformation_mode = \"half_pixel_symmetric\">"
                 "(x, , scales)"),
    (7, 8, "y = BatchNormalization<epsilon = 0.01>(x, scale, bias, mean, var)"),
    (9, NEWEST, "y = BatchNormalization<epsilon = 0.01>(x, scale, bias, mean, var)"),
    (7, 11, "y = Dropout<ratio = 0.5>(m)"),
    (12, NEWEST, "y, y2 = Dropout(m)"),
    (7, 9, "y = AveragePool<kernel_shape = [2, 3], pads = [1, 1, 0, 1], strides = [2, 1]>(x)"),
    (10, NEWEST, "y = AveragePool<kernel_shape = [2, 2], ceil_mode = 1, strides = [2, 2]>(x)"),
    # a last window would start in the padding at the end
    (10, NEWEST, "y = AveragePool<kernel_shape = [2, 1], pads = [0, 0, 1, 0], ceil_mode = 1,"
                 " strides = [2, 3]>(x)"),
    (10, NEWEST, "y, y2 = MaxPool<kernel_shape = [2, 1], pads = [0, 0, 1, 0], ceil_mode = 1,"
                 " strides = [2, 3]>(x)"),
    (18, NEWEST, "y = LpPool<kernel_shape = [2, 1], pads = [0, 0, 1, 0], ceil_mode = 1,"
                 " strides = [2, 3]>(x)"),
    (10, NEWEST, "y = MaxPool<kernel_shape = [2, 3], strides = [2, 1], auto_pad = \"SAME_UPPER\">(x)"),
    (7, NEWEST, "y = Gemm<alpha = 0.5, transA = 1>(m, m, half)"),
    (7, NEWEST, "y = Concat<axis = -3>(x, x)"),
    (11, NEWEST, "y = Gather<axis = -1>(m, negative)"),
    (7, 10, "y = Gather<axis = 1>(m, two)"),
    (11, NEWEST, "y = DepthToSpace<blocksize = 2, mode = \"CRD\">(blocks)"),
    (7, NEWEST, "y = Flatten<axis = 2>(x)"),
    (7, NEWEST, "y = ArgMax<axis = 1, keepdims = 0>(m)"),
    (12, NEWEST, "y = ArgMax<axis = 0, select_last_index = 1>(ties)"),
    (7, NEWEST, "y = Elu<alpha = 0.7>(m)"),
    (9, NEWEST, "y = PRelu(x, slope)"),
    (7, NEWEST, "y = Pow(positive, half)"),
    (13, NEWEST, "y = Pow(positive, two)"),
    (10, NEWEST, "y = Mod<fmod = 1>(m, half)"),
    (9, NEWEST, "y = Cast<to = 7>(m)"),
    (14, NEWEST, "y = Reshape<allowzero = 0>(x, shape)"),
    (7, NEWEST, "y = Reshape(x, shape)"),
    (11, NEWEST, "y = CumSum<reverse = 1>(m, axis0)"),
    (15, NEWEST, "y = Shape<start = 1, end = -1>(x)"),
    (17, NEWEST, "y = LayerNormalization<axis = 2>(x, ln)"),
    (7, NEWEST, "y = InstanceNormalization(x, scale, bias)"),
    (18, 20, "y = GroupNormalization<num_groups = 2>(blocks, groups, groups)"),
    (21, NEWEST, "y = GroupNormalization<num_groups = 2>(blocks, ones4, ones4)"),
    (20, NEWEST, "y = Gelu<approximate = \"tanh\">(m)"),
    (14, NEWEST, "y = HardSwish(m)"),
    (14, NEWEST, "y = Trilu<upper = 0>(m)"),
    (8, NEWEST, "y = Sum(m, half, m)"),
    (9, NEWEST, "y = Where(flags, m, half)"),
    (7, NEWEST, "y = MatMul(x, right)"),
]  # fmt: skip
INPUTS = {
    "x": "float[2, 3, 4, 5]", "m": "float[6, 4]", "row": "float[1, 7]", "positive": "float[2, 3]",
    "blocks": "float[2, 4, 3, 3]", "ties": "float[9, 2]", "flags": "bool[6, 1]",
}  # fmt: skip
DATA = {
    "low": "float low = {-0.5}", "high": "float high = {0.5}", "half": "float[1] half = {0.5}",
    "axes13": "int64[2] axes13 = {1, 3}", "last": "int64[1] last = {-1}", "one": "int64[1] one = {1}",
    "axes23": "int64[2] axes23 = {2, 3}", "zero": "int64[1] zero = {0}", "axes03": "int64[2] axes03 = {0, 3}",
    "parts": "int64[2] parts = {1, 3}", "pads": "int64[8] pads = {0, 0, 1, 2, 0, 0, 0, 1}",
    "two_pads": "int64[4] two_pads = {1, 2, 0, 1}", "starts": "int64[2] starts = {1, -1}",
    "ends": "int64[2] ends = {3, -100}", "steps": "int64[2] steps = {1, -2}", "two": "int64[1] two = {2}",
    "scales": "float[4] scales = {1.0, 1.0, 2.0, 3.0}", "scales2": "float[2] scales2 = {2.0, 1.5}",
    "uneven": "float[4] uneven = {1.0, 1.0, 2.6, 1.5}", "smaller": "float[4] smaller = {1.0, 1.0, 0.4, 0.7}",
    "mixed": "float[4] mixed = {1.0, 1.0, 0.5, 2.0}",
    "sizes": "int64[4] sizes = {2, 3, 7, 9}", "scale": "float[3] scale = {1.0, 2.0, 0.5}",
    "bias": "float[3] bias = {0.0, 1.0, -1.0}", "mean": "float[3] mean = {0.1, 0.2, 0.3}",
    "var": "float[3] var = {1.0, 0.5, 2.0}", "negative": "int64[3] negative = {-1, 0, -4}",
    "slope": "float[3, 1, 1] slope = {0.1, 0.2, 0.3}",
    "shape": "int64[3] shape = {0, -1, 10}", "axis0": "int64 axis0 = {0}",
    "ln": "float[4, 5] ln = {" + ", ".join(f"{i / 10}" for i in range(20)) + "}",
    "groups": "float[2] groups = {1.0, 2.0}", "ones4": "float[4] ones4 = {1.0, 2.0, 1.0, 2.0}",
    "right": "float[5, 2] right = {" + ", ".join(f"{i / 7}" for i in range(10)) + "}",
}  # fmt: skip


def nodes_of(opset: int, after: int = 0) -> list[str]:
    """Of an opset, those that begin after another one."""
    return [text for first, last, text in FORMS if after < first <= opset <= last]


def model_of(opset: int, nodes: list[str]) -> onnx.ModelProto:
    """One graph of these nodes, each with outputs of its own, about whose types nothing is declared."""
    parsed: list[onnx.NodeProto] = []
    for number, text in enumerate(nodes):
        node = onnx.parser.parse_node(text)
        for position, name in enumerate(node.output):
            node.output[position] = f"{name}_{number}"
        parsed.append(node)
    used = {name for node in parsed for name in node.input}
    inputs = ", ".join(f"{kind} {name}" for name, kind in INPUTS.items() if name in used)
    data = ", ".join(text for name, text in DATA.items() if name in used)
    model = onnx.parser.parse_model(
        f'<ir_version: 9, opset_import: ["" : {opset}]>'
        f" g ({inputs}) => (float y_0) <{data}> {{ y_0 = Relu(x) }}"
    )
    del model.graph.node[:]
    del model.graph.output[:]
    model.graph.node.extend(parsed)
    names = [name for node in parsed for name in node.output]
    model.graph.output.extend(onnx.helper.make_value_info(name, onnx.TypeProto()) for name in names)
    return model


def inputs_of(model: onnx.ModelProto) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    feeds: dict[str, np.ndarray] = {}
    for value in model.graph.input:
        shape = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        array = rng.standard_normal(shape, dtype=np.float32)
        special = {"flags": array > 0, "positive": abs(array), "ties": array.round()}
        feeds[value.name] = special.get(value.name, array)
    return feeds


# One of each run of opsets in which no form above begins or ends
OPSETS = [7, 9, 10, 12, 13, 17, 20, 24]


@pytest.mark.parametrize("opset", sampled(OPSETS, OPSETS[0], OPSETS[-1]))
def test_operators_mean_what_their_opset_says(opset: int):
    assert_those_of_onnxruntime(opset, nodes_of(opset))


@pytest.mark.parametrize(("before", "opset"), list(pairwise(OPSETS))[:-1])
def test_operators_that_begin_mean_what_their_opset_says(before: int, opset: int):
    assert_those_of_onnxruntime(opset, nodes_of(opset, after=before))


def test_nearest_elements_of_an_opset_that_does_not_say_which_those_are():
    model = model_of(10, ['y = Resize<mode = "nearest">(x, mixed)'])
    with raises(UnknownOperatorError, "opset 10", "scales are [1.0, 1.0, 0.5, 2.0]", exact=False):
        ONNXModel(model)(**inputs_of(model))


def assert_those_of_onnxruntime(opset: int, nodes: list[str]) -> None:
    model = model_of(opset, nodes)
    feeds = inputs_of(model)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    expected = session.run(None, feeds)
    results = ONNXModel(model)(**feeds)
    for value, ours, theirs in zip(model.graph.output, results, expected, strict=True):
        assert ours.shape == theirs.shape and ours.dtype == theirs.dtype, value.name
        # products of four or five elements, in another order
        np.testing.assert_allclose(
            ours, theirs, rtol=2e-5, atol=2e-6, err_msg=f"{value.name} of opset {opset}"
        )


@pytest.mark.parametrize("shape", [(2, 3), (2, 3, 4), (2, 3, 3, 5)])
def test_slopes_for_channels_before_opset_7(shape: tuple[int, ...]):
    slope = np.array([0.25, 0.5, 2], np.float32)
    model = onnx.parser.parse_model(
        f"""<ir_version: 3, opset_import: ["" : 6]>
            g (float{list(shape)} x, float[3] s) => (float{list(shape)} y) {{ y = PRelu(x, s) }}"""
    )
    x = np.random.default_rng(0).standard_normal(shape, dtype=np.float32)
    expected = torch.nn.functional.prelu(torch.from_numpy(x), torch.from_numpy(slope)).numpy()
    np.testing.assert_allclose(ONNXModel(model)(x, slope), expected, rtol=1e-6)


def test_slopes_before_opset_7_whose_operand_has_no_declared_rank():
    model = onnx.parser.parse_model(
        """<ir_version: 3, opset_import: ["" : 6]> g (float[2, 3, 3] x, float[3] s) => (float[2, 3, 3] y)
           { z = Neg(x)  y = PRelu(z, s) }"""
    )
    with raises(UnknownOperatorError, "PRelu", "opset 6", "'z'"):
        ONNXModel(model)(np.ones((2, 3, 3), np.float32), np.ones(3, np.float32))


def test_hardmax_before_opset_13_is_another_operator():
    text = """<ir_version: 6, opset_import: ["" : 11]> g (float[2, 3, 4] x) => (float[2, 3, 4] y)
              { y = Hardmax%s(x) }"""
    x = np.random.default_rng(0).standard_normal((2, 3, 4), dtype=np.float32)
    result = ONNXModel(onnx.parser.parse_model(text % "<axis = 2>"))(x)
    assert (result == (x == x.max(-1, keepdims=True))).all()
    with raises(UnknownOperatorError, "Hardmax", "opset 11", "axis 1"):
        ONNXModel(onnx.parser.parse_model(text % ""))(x)
