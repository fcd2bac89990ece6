"""Models that nobody vouches for: what is wrong with them is an error, never a crash, a hang or a wrong shape."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
import torch
from onnx import AttributeProto, TensorProto, helper

from daceml.config import config
from daceml.errors import (
    CallError,
    ConfigurationError,
    DacemlError,
    InvalidNodeError,
    OnnxFileError,
    ShapeError,
    UnknownOperatorError,
)
from daceml.frontend.importer import import_source
from daceml.frontend.model_file import ModelSource, checked
from daceml.frontend.onnx_model import ONNXModel
from daceml.frontend.onnx_process import OnnxProcess, OnnxProcessError
from daceml.sdfg.network import Network


def parse(graph: str, *, opset: int = 20, functions: str = "") -> onnx.ModelProto:
    """A model from ONNX's own text form."""
    return onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["" : {opset}]>\n{graph}\n{functions}')


def imported(model: onnx.ModelProto | str, **options: Any) -> Network:
    model = parse(model) if isinstance(model, str) else model
    return import_source(checked(ModelSource(model=model, name="net")), name="net", **options)


def refusal(model: onnx.ModelProto | str, kind: type[DacemlError], **options: Any) -> str:
    with pytest.raises(kind) as caught:
        imported(model, **options)
    text = str(caught.value)
    assert "where:" in text and "why:" in text and "fix:" in text
    return text


MLP = """
    g (float[N, 4] x) => (float[N, 3] y) <float[4, 3] w = {1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 1.0, 2.0, 3.0}>
    { h = MatMul(x, w)  r = Relu(h)  y = Softmax<axis = 1>(r) }"""


def changed(change: Callable[[onnx.GraphProto], Any]) -> onnx.ModelProto:
    model = parse(MLP)
    change(model.graph)
    return model


# The graph


def rename(graph: onnx.GraphProto, node: int, side: str, name: str) -> None:
    getattr(graph.node[node], side)[0] = name


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda g: rename(g, 0, "input", "ghost"), "reads 'ghost', which is not defined anywhere"),
        (lambda g: rename(g, 0, "input", "y"), "reads 'y', which is made by a later node, or by itself"),
        (lambda g: rename(g, 1, "output", "h"), "defines 'h', which is defined already"),
        (lambda g: rename(g, 1, "output", "x"), "defines 'x', which is defined already"),
        (lambda g: rename(g, 2, "output", "z"), "the graph returns 'y', which is not defined"),
        (lambda g: setattr(g.node[0], "op_type", ""), "has no operator"),
        (lambda g: g.ClearField("output"), "its graph has no outputs"),
        (lambda g: g.input.append(g.input[0]), "two graph inputs are named 'x'"),
        (lambda g: g.initializer.append(g.initializer[0]), "two initializers are named 'w'"),
        (
            lambda g: setattr(g.input[0], "name", ""),
            "an input, output or initializer of its graph has no name",
        ),
        (lambda g: g.node[2].attribute.append(g.node[2].attribute[0]), "has attribute 'axis' 2 times"),
        (lambda g: setattr(g.node[2].attribute[0], "type", AttributeProto.FLOAT), "is a FLOAT and has 'i'"),
        (lambda g: g.node[2].attribute[0].ClearField("type"), "has no type"),
        (lambda g: setattr(g.node[2].attribute[0], "ref_attr_name", "a"), "refers to a function's"),
        (lambda g: setattr(g.node[2].attribute[0], "name", ""), "has an attribute without a name"),
    ],
)
def test_graphs_that_are_none(change: Callable[[onnx.GraphProto], Any], reason: str):
    assert reason in refusal(changed(change), OnnxFileError)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda t: t.dims.append(2**40), "needs 52776558133248 bytes of data, and raw_data has 48"),
        (lambda t: t.dims.append(2**62), "has the dimension 4611686018427387904"),
        (lambda t: t.dims.append(-1), "has the dimension -1"),
        (lambda t: setattr(t, "raw_data", t.raw_data[:-1]), "needs 48 bytes of data, and raw_data has 47"),
        (lambda t: setattr(t, "raw_data", b""), "it has no data, and its shape [4, 3] has 12 elements"),
        (lambda t: t.float_data.append(1.0), "it has data in float_data and in raw_data"),
        (lambda t: setattr(t, "data_type", 99), "99 is no element type that onnx"),
        (
            lambda t: setattr(t, "data_type", TensorProto.STRING),
            "of type STRING, which raw_data does not hold",
        ),
        (lambda t: setattr(t.segment, "begin", 1), "stored in segments"),
        (lambda t: t.external_data.add(key="location", value="w.bin"), "not marked as external"),
    ],
)
def test_tensors_whose_data_does_not_fit(change: Callable[[TensorProto], Any], reason: str):
    def change_weight(graph: onnx.GraphProto) -> None:
        tensor = graph.initializer[0]
        tensor.CopyFrom(onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(tensor), "w"))
        change(tensor)

    assert reason in refusal(changed(change_weight), OnnxFileError)


def test_names_that_are_no_text():
    data = parse(MLP).SerializeToString()
    for word, what in (
        (b"Relu", "the name of a node"),
        (b"\x01w", "the name of a"),
        (b"\x01N", "the name of a dimension"),
    ):
        assert word in data
        model = onnx.ModelProto.FromString(data.replace(word, word[:-1] + b"\xff"))
        assert what in refusal(model, OnnxFileError) and "not UTF-8" in refusal(model, OnnxFileError)


def test_an_empty_graph_hands_its_inputs_through():
    assert imported("g (float[2] x) => (float[2] x) { }").outputs == ("x",)


# Operators


def test_unknown_operators_and_opsets():
    assert "ONNX has no operator Frob" in refusal(
        "g (float[2] x) => (float[2] y) { y = Frob(x) }", UnknownOperatorError
    )
    newest = onnx.defs.onnx_opset_version()
    for opset, what in ((newest + 1, "is newer than this onnx"), (0, "is no opset"), (2**40, "is newer")):
        model = parse(MLP)
        model.opset_import[0].version = opset
        assert f"opset {opset} {what}" in refusal(model, UnknownOperatorError)
    twice = parse(MLP)
    twice.opset_import.add(domain="ai.onnx", version=13)
    assert "it imports domain '' 2 times" in refusal(twice, OnnxFileError)
    future = parse(MLP)
    future.ir_version = 99
    assert "net is of a newer ONNX than this one" in refusal(future, OnnxFileError)


def test_what_the_converter_cannot_convert_is_named():
    old = parse("g (float[2] x) => (float[2] y) { y = Scatter(x, x, x) }", opset=6)
    assert "opset 6 is too old, and its Scatter cannot be converted" in refusal(old, UnknownOperatorError)


def test_old_models_are_converted_without_their_data():
    """Neither large data, nor the standard domain's other name, nor initializers that are no inputs disturb."""
    weight = onnx.numpy_helper.from_array(np.ones((40, 40), dtype=np.float32), "w")
    model = parse(
        "g (float[N, 40] x) => (float[N, 40] y) { h = MatMul(x, w) y = Clip<min = 0.0, max = 6.0>(h) }",
        opset=8,
    )
    model.graph.initializer.append(weight)
    model.ir_version = 3
    model.opset_import[0].domain = model.graph.node[0].domain = "ai.onnx"
    network = imported(model)
    assert list(network.weights) == ["w"] and str(network.sdfg.arrays["y"].shape[0]) == "N"


@pytest.mark.parametrize(
    "graph",
    [
        "g (bool c, float[2] x) => (float[2] y) { y = If(c) <then_branch = t () => (float[2] a) { a = Relu(x) },"
        " else_branch = e () => (float[2] b) { b = Neg(x) }> }",
        "g (int64 n, bool c, float[2] x) => (float[2] y) { y = Loop(n, c, x)"
        " <body = b (int64 i, bool d, float[2] u) => (bool e, float[2] v) { e = Identity(d) v = Relu(u) }> }",
    ],
)
def test_bodies_are_refused(graph: str):
    assert "has a body" in refusal(graph, InvalidNodeError)


def test_values_that_are_no_dense_tensors():
    sequence = "g (float[2] x) => (seq(float[2]) s) { s = SequenceConstruct(x) }"
    assert "it is a sequence, and a network holds dense tensors only" in refusal(sequence, ShapeError)
    assert "'x' cannot be held" in refusal(
        "g (optional(float[2]) x) => (bool y) { y = OptionalHasElement(x) }", ShapeError
    )
    assert "has element type string" in refusal(
        "g (string[2] x) => (string[2] y) { y = Identity(x) }", ShapeError
    )

    def sparse(graph: onnx.GraphProto) -> None:
        graph.sparse_initializer.add(dims=[4, 3]).values.CopyFrom(graph.initializer[0])
        del graph.initializer[:]

    assert "initializer 'w' is sparse" in refusal(changed(sparse), ShapeError)
    assert "strings" in refusal(
        'g (float[2] x) => (float[2] y) { c = Constant<value_string = "a">() y = Add(x, c) }', ShapeError
    )


def test_constants_of_the_wrong_kind():
    model = parse("g (float[2] x) => (float[2] y) { c = Constant<value_float = 1.0>() y = Add(x, c) }")
    model.graph.node[0].attribute[0].CopyFrom(helper.make_attribute("value", [1.0, 2.0]))
    assert "attribute 'value' of a Constant must be TENSOR" in refusal(model, InvalidNodeError)


def functions(calls: dict[str, list[str]]) -> onnx.ModelProto:
    """A graph that calls F0; each function calls others in turn."""
    model = parse("g (float[2] x) => (float[2] y) { y = local.F0(x) }")
    model.opset_import.add(domain="local", version=1)
    for name, called in calls.items():
        values = [f"v{i}" for i in range(len(called) + 1)]
        nodes = [
            helper.make_node(f, [a], [b], domain="local")
            for f, a, b in zip(called, values, values[1:], strict=False)
        ]
        opsets = [helper.make_opsetid("local", 1)]
        model.functions.append(helper.make_function("local", name, [values[0]], [values[-1]], nodes, opsets))
    return model


def test_functions_that_never_end():
    assert "in a circle: F0 -> F0" in refusal(functions({"F0": ["F0"]}), OnnxFileError)
    circle = functions({"F0": ["F1", "F1"], "F1": ["F2"], "F2": ["F0"]})
    assert "its local functions call each other in a circle" in refusal(circle, OnnxFileError)


def test_functions_that_stand_for_more_nodes_than_memory_holds():
    """Forty functions, each of which calls the next one twice: a thousand billion nodes."""
    many = functions({f"F{i}": [f"F{i + 1}"] * 2 for i in range(40)} | {"F40": []})
    start = time.monotonic()
    assert "more than 1000000 nodes once its local functions are inlined" in refusal(many, OnnxFileError)
    assert time.monotonic() - start < 10, "nothing was inlined"


# Types and shapes


@pytest.mark.parametrize(
    ("declared", "claim", "truth"),
    [
        ("float[N, 4] y", "float [N, 4]", "for N = 1536, Softmax makes float [1536, 3]"),
        ("float[3, N] y", "float [3, N]", "for N = 1536, Softmax makes float [1536, 3]"),
        ("float[2, 3] y", "float [2, 3]", "for N = 1536, Softmax makes float [1536, 3]"),
        ("float[N] y", "float [N]", "Softmax makes float [1536, 3]"),
        ("double[N, 3] y", "double [N, 3]", "Softmax makes float [1536, 3]"),
        ("float[\"N + 1\", 3] y", "float [N + 1, 3]", "Softmax makes float [1536, 3]"),
        ("float[9223372036854775807, 3] y", "float [9223372036854775807, 3]", "Softmax makes float [1536, 3]"),
    ],
)  # fmt: skip
def test_declared_outputs_that_are_wrong(declared: str, claim: str, truth: str):
    name, _, shape = declared.rpartition(" ")[0].partition("[")
    model = parse(MLP)
    dims: list[Any] = [part.strip(' "') for part in shape.strip("[]").split(",")]
    dims = [int(dim) if dim.isdecimal() else dim for dim in dims]
    kind = {"float": TensorProto.FLOAT, "double": TensorProto.DOUBLE}[name]
    model.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", kind, dims))
    text = refusal(model, ShapeError)
    assert f"'y' is declared as {claim}, which it is not" in text and truth in text


def test_declared_intermediate_values_that_are_wrong():
    wrong = changed(
        lambda g: g.value_info.append(helper.make_tensor_value_info("h", TensorProto.FLOAT, ["N", 5]))
    )
    assert "'h' is declared as float [N, 5], which it is not" in refusal(wrong, ShapeError)
    initializer = changed(
        lambda g: g.value_info.append(helper.make_tensor_value_info("w", TensorProto.FLOAT, [3, 4]))
    )
    text = refusal(initializer, ShapeError)
    assert "initializer 'w' is declared as float [3, 4]" in text and "its data is float [4, 3]" in text


def test_a_declaration_that_is_right_for_even_sizes_only():
    pool = 'g (float[1, 1, H, 4] x) => (float[1, 1, "{}", 2] y) {{ y = MaxPool<kernel_shape = [2, 2], strides = [2, 2]{}>(x) }}'
    assert imported(pool.format("floor(H/2)", "")).outputs == ("y",)
    text = refusal(pool.format("floor(H/2)", ", ceil_mode = 1"), ShapeError)
    assert "for H = 7, MaxPool makes float [1, 1, 4, 2]" in text


def test_shapes_that_only_the_caller_knows_are_refused():
    """Whatever the model declares: another value of `shape` would give the result another shape."""
    text = refusal(
        "g (float[2, 6] x, int64[2] shape) => (float[3, 4] y) { y = Reshape(x, shape) }", ShapeError
    )
    assert "the shape of 'y' cannot be known before the model runs" in text
    assert "the model says float [3, 4], which nothing in it confirms" in text
    assert "finds int64 [2, ?]" in refusal(
        "g (float[4, 1] x) => (int64[2, 4] y) { y = NonZero(x) }", ShapeError
    )
    assert imported(
        "g (float[2, 6] x) => (float[3, 4] y) <int64[2] s = {3, 4}> { y = Reshape(x, s) }"
    ).outputs == ("y",)


def test_operands_that_do_not_fit_together():
    text = refusal("g (float[2] x, float[3] z) => (float[2] y) { y = Add(x, z) }", ShapeError)
    assert "(op_type:Add)" in text and "ncompatible dimensions" in text


def test_computed_shapes_are_confirmed_with_numbers():
    network = imported("""
        g (float[N, T, 4] x) => (float[N, "4*T"] y) <int64[1] first = {0}, int64[1] rest = {-1}>
        { s = Shape(x)  n = Gather<axis = 0>(s, first)  shape = Concat<axis = 0>(n, rest)  y = Reshape(x, shape) }""")
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
    assert "the rank of 'x' is unknown" in refusal(model, ShapeError)


@pytest.mark.parametrize(
    "text",
    [
        "9**9**9**9", "exec('raise SystemExit')", "__import__('os').abort()", "N/0", "(" * 400, "N" * 5000, "x[0]",
        "N if 1 else 2", "[N for N in range(9**9)]", "lambda: 0", "1e400", "((N**8)**8)**8", "N.real", "é*2",
    ],
)  # fmt: skip
def test_texts_of_dimensions_are_never_run(text: str):
    """What is no arithmetic is the name of a dimension, however odd."""
    model = parse("g (float[2] x) => (float[2] y) { y = Relu(x) }")
    for value in (model.graph.input[0], model.graph.output[0]):
        value.type.tensor_type.shape.dim[0].dim_param = text
    start = time.monotonic()
    network = imported(model)
    assert len(network.sdfg.symbols) == 1 and time.monotonic() - start < 10


@pytest.mark.parametrize("size", [2**31, 2**62])
def test_tensors_that_no_loop_counts(size: int):
    model = parse("g (float[2] x) => (float[2] y) { y = Relu(x) }")
    for value in (model.graph.input[0], model.graph.output[0]):
        value.type.tensor_type.shape.dim[0].dim_value = size
    with pytest.raises(ShapeError, match=f"has {size} elements"):
        ONNXModel(model)(torch.ones(2))


def test_shapes_that_claim_to_be_huge_are_not_computed():
    """A million million numbers are asked for, and declared to be two."""
    text = refusal(
        "g () => (float[2] y) <int64[1] n = {1000000000000}> { y = ConstantOfShape(n) }", ShapeError
    )
    assert "'y' is declared as float [2], which it is not" in text
    count = "g () => (int64[2] y) <int64 a = {0}, int64 b = {1000000000000}, int64 d = {1}> { y = Range(a, b, d) }"
    assert "'y' is declared as int64 [2], which it is not" in refusal(count, ShapeError)


@pytest.mark.parametrize("dims", [{"N": -1}, {"N": 2.0}, {"N": True}, {"N": "2"}, {3: 2}])
def test_sizes_that_are_none(dims: Any):
    with pytest.raises(ConfigurationError, match="dims cannot be"):
        ONNXModel(parse(MLP), dims=dims)


# ONNX's C++ code

CRASH = """
    g (float[2] x) => (float[2] y) { y = Relu(x) }"""


def crashing_model() -> onnx.ModelProto:
    """A model at which shape inference of onnx 1.23 follows a null pointer; another version may refuse it."""
    model = parse("g (float[2] x) => (float[2] y) { y = EyeLike(x) }")
    del model.graph.node[0].input[:]
    return model


def test_models_that_crash_onnx_are_refused():
    with pytest.raises(DacemlError) as caught:
        imported(crashing_model())
    assert caught.value.fix


def test_the_process_survives_its_own_end():
    with OnnxProcess(time_limit_s=20) as process:
        process._child.kill()
        with pytest.raises(OnnxProcessError, match="was ended by signal 9"):
            process.infer_shapes(parse(MLP))
        assert process.infer_shapes(parse(MLP)).graph.output[0].name == "y", "a new one was started"


def test_a_process_that_does_not_answer_is_ended():
    with OnnxProcess(time_limit_s=0.0) as process:
        with pytest.raises(OnnxProcessError, match="no answer within 0 s"):
            process.infer_shapes(parse(MLP))


# What is left behind


def test_a_refused_model_leaves_nothing_in_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    cache = replace(config(), cache=str(tmp_path))
    monkeypatch.setattr("daceml.frontend.onnx_model.config", lambda: cache)
    with pytest.raises(ShapeError):
        ONNXModel(parse("g (float[2] x) => (float[3] y) { y = Relu(x) }")).program
    assert [file for file in tmp_path.rglob("*") if file.is_file() and file.suffix != ".lock"] == []


def test_metadata_of_our_own_exporter_has_no_power_in_a_foreign_file():
    """A file may not name its inputs' parameters, nor let results replace them."""
    model = parse(MLP)
    model.metadata_props.add(key="daceml.parameters", value='["w", "nothing"]')
    model.metadata_props.add(key="daceml.buffer_mutations", value='{"y": "w"}')
    compiled = ONNXModel(model, dims={"N": 1})
    first, second = compiled(torch.ones(1, 4)), compiled(torch.ones(1, 4))
    assert first.shape == (1, 3) and torch.equal(first, second)
    with pytest.raises(CallError, match="has shape"):
        compiled(torch.ones(2, 4))
