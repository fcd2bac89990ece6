"""What a model declares about its shapes, against what its operators make of its inputs."""

from __future__ import annotations

import time
from typing import Any

import pytest
import torch
from onnx import TensorProto, helper

from daceml.errors import ConfigurationError, ExecutionError, NoImplementationError, ShapeError
from daceml.module.onnx_model import ONNXModel
from daceml.onnx_ops.lowering import lower
from tests.support.foreign_models import MLP, assert_refused, changed, imported, parse
from tests.support.golden import golden, raises


@pytest.mark.parametrize(
    ("declared", "claim"),
    [
        ("float[N, 4] y", "float [N, 4]"),
        ("float[3, N] y", "float [3, N]"),
        ("float[2, 3] y", "float [2, 3]"),
        ("float[N] y", "float [N]"),
        ("double[N, 3] y", "double [N, 3]"),
        ('float["N + 1", 3] y', "float [N + 1, 3]"),
        ("float[4611686018427, 3] y", "float [4611686018427, 3]"),
    ],
)
def test_declared_outputs_that_are_wrong(declared: str, claim: str):
    name, _, shape = declared.rpartition(" ")[0].partition("[")
    model = parse(MLP)
    dims: list[Any] = [part.strip(' "') for part in shape.strip("[]").split(",")]
    dims = [int(dim) if dim.isdecimal() else dim for dim in dims]
    kind = {"float": TensorProto.FLOAT, "double": TensorProto.DOUBLE}[name]
    model.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", kind, dims))
    assert_refused(model, ShapeError, "'y'", claim, "N = 1536", "Softmax", "float [1536, 3]")


def test_declared_intermediate_values_that_are_wrong():
    wrong = changed(
        lambda g: g.value_info.append(helper.make_tensor_value_info("h", TensorProto.FLOAT, ["N", 5]))
    )
    assert_refused(wrong, ShapeError, "'h'", "float [N, 5]")
    initializer = changed(
        lambda g: g.value_info.append(helper.make_tensor_value_info("w", TensorProto.FLOAT, [3, 4]))
    )
    assert_refused(initializer, ShapeError, "'w'", "float [3, 4]", "float [4, 3]")


def test_a_declaration_that_is_right_for_even_sizes_only():
    pool = """
        g (float[1, 1, H, 4] x) => (float[1, 1, "{}", 2] y)
        {{ y = MaxPool<kernel_shape = [2, 2], strides = [2, 2]{}>(x) }}"""
    assert imported(pool.format("floor(H/2)", "")).outputs == ("y",)
    rounded_up = pool.format("floor(H/2)", ", ceil_mode = 1")
    assert_refused(rounded_up, ShapeError, "'y'", "H = 7", "MaxPool", "float [1, 1, 4, 2]")


def test_shapes_that_depend_on_data_are_the_models_word():
    """Whatever the model declares, another value of `shape` gives another result: every run compares."""
    model = ONNXModel(
        parse("g (float[2, 6] x, int64[2] shape) => (float[3, 4] z) { y = Reshape(x, shape)  z = Neg(y) }")
    )
    assert_refused(model.model, ShapeError, "'y'", "float [?, ?]")

    model = ONNXModel(
        parse("""g (float[2, 6] x, int64[2] shape) => (float[3, 4] z) <float[3, 4] y>
                 { y = Reshape(x, shape)  z = Neg(y) }""")
    )
    x = torch.randn(2, 6)
    assert torch.equal(model(x, torch.tensor([3, 4])), -x.reshape(3, 4))
    for other in ([4, 3], [12, 1], [2, 6]):
        with raises(ExecutionError, "Reshape", "ONNX Runtime", exact=False) as refusal:
            model(x, torch.tensor(other))
        assert [refusal.value.what, refusal.value.why] == [golden(), golden()]


def test_nothing_but_onnxruntime_runs_a_node_whose_shape_is_the_models_word():
    text = "g (float[5] x, int64[1] first, int64[1] last) => (float[2] y) { y = Slice(x, first, last) }"
    network = imported(text)
    lowering = lower(network)
    assert lowering.nodes[0].chosen == "onnxruntime"
    assert lowering.nodes[0].refusals[0][1] == golden()
    with raises(NoImplementationError, "Slice", "onnxruntime"):
        lower(imported(text), allowed=("alias", "aten", "native"))


def test_a_shape_that_depends_on_data_and_is_not_declared():
    text = "g (float[4, 1] x) => (int64[2, K] y) { y = NonZero(x) }"
    assert_refused(text, ShapeError, "'y'", "NonZero", "int64 [2, ?]")


def test_operands_that_do_not_fit_together():
    """ONNX says how they differ."""
    text = "g (float[2] x, float[3] z) => (float[2] y) { y = Add(x, z) }"
    assert_refused(text, ShapeError, "(op_type:Add)", "ncompatible dimensions", exact=False)


def test_computed_shapes_are_confirmed_with_numbers():
    network = imported("""
        g (float[N, T, 4] x) => (float[N, "4*T"] y) <int64[1] first = {0}, int64[1] rest = {-1}>
        { s = Shape(x)  n = Gather<axis = 0>(s, first)  shape = Concat<axis = 0>(n, rest)
          y = Reshape(x, shape) }""")
    assert [str(size) for size in network.sdfg.arrays["y"].shape] == ["N", "4*T"]


def test_dimensions_without_a_name_take_any_size():
    model = ONNXModel(
        parse("g (float[?, 3] x, float[?, 3] z) => (float[?, ?] y) { y = Concat<axis = 0>(x, z) }")
    )
    assert model(torch.ones(2, 3), torch.ones(5, 3)).shape == (7, 3)
    assert [record.shape for record in model.program.manifest.inputs] == [("x_dim0", 3), ("z_dim0", 3)]


def test_an_input_of_unknown_rank():
    model = parse("g (float[2] x) => (float[2] y) { y = Relu(x) }")
    model.graph.input[0].type.tensor_type.ClearField("shape")
    assert_refused(model, ShapeError, "'x'", "rank")


ODD_TEXTS = [
    "9**9**9**9", "exec('raise SystemExit')", "__import__('os').abort()", "N/0", "(" * 400, "N" * 5000,
    "x[0]",
    "N if 1 else 2", "[N for N in range(9**9)]", "lambda: 0", "1e400", "((N**8)**8)**8", "N.real", "é*2",
]  # fmt: skip


def test_texts_of_dimensions_are_never_run():
    """What is no arithmetic is the name of a dimension, however odd."""
    count = len(ODD_TEXTS)
    inputs, outputs = (", ".join(f"float[2] {name}{i}" for i in range(count)) for name in "xy")
    nodes = " ".join(f"y{i} = Relu(x{i})" for i in range(count))
    model = parse(f"g ({inputs}) => ({outputs}) {{ {nodes} }}")
    for text, *values in zip(ODD_TEXTS, model.graph.input, model.graph.output, strict=True):
        for value in values:
            value.type.tensor_type.shape.dim[0].dim_param = text
    start = time.monotonic()
    network = imported(model)
    assert len(network.sdfg.symbols) == count and time.monotonic() - start < 10
    shapes = [tuple(map(str, network.sdfg.arrays[f"y{i}"].shape)) for i in range(count)]
    assert len(set(shapes)) == count, "each is a dimension of its own"


@pytest.mark.parametrize("size", [2**31, 2**62])
def test_tensors_that_no_loop_counts(size: int):
    model = parse("g (float[2] x) => (float[2] y) { y = Relu(x) }")
    for value in (model.graph.input[0], model.graph.output[0]):
        value.type.tensor_type.shape.dim[0].dim_value = size
    with raises(ShapeError, size):
        ONNXModel(model)(torch.ones(2))


def test_shapes_that_claim_to_be_huge_are_not_computed():
    """A million million numbers are asked for, and declared to be two."""
    zeros = "g () => (float[2] y) <int64[1] n = {1000000000000}> { y = ConstantOfShape(n) }"
    assert_refused(zeros, ShapeError, "'y'", "float [2]", "float [1000000000000]")
    count = """
        g () => (int64[2] y) <int64 a = {0}, int64 b = {1000000000000}, int64 d = {1}>
        { y = Range(a, b, d) }"""
    assert_refused(count, ShapeError, "'y'", "int64 [2]", "int64 [1000000000000]")


@pytest.mark.parametrize("dims", [{"N": -1}, {"N": 2.0}, {"N": True}, {"N": "2"}, {3: 2}])
def test_sizes_that_are_none(dims: Any):
    ((name, size),) = dims.items()
    with raises(ConfigurationError, "dims", repr(name), repr(size)):
        ONNXModel(parse(MLP), dims=dims)
