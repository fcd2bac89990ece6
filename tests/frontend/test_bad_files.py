"""Models that nobody vouches for: what is wrong with them is an error, never a crash, a hang or wrong."""

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
    DacemlError,
    InvalidNodeError,
    OnnxFileError,
    ShapeError,
    UnknownOperatorError,
)
from daceml.frontend.onnx_model import ONNXModel
from daceml.frontend.onnx_process import OnnxProcess, OnnxProcessError
from tests.frontend.foreign import MLP, changed, imported, parse, refusal

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
    """Neither large data, nor the standard domain's other name, nor initializers alone disturb."""
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
        "g (bool c, float[2] x, int64[2] i) => (float[2] y) { y = If(c)"
        " <then_branch = t () => (float[2] a) { a = Gather(x, i) },"
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


# ONNX's C++ code


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
    with (
        OnnxProcess(time_limit_s=0.0) as process,
        pytest.raises(OnnxProcessError, match="no answer within 0 s"),
    ):
        process.infer_shapes(parse(MLP))


# What is left behind


def test_a_refused_model_leaves_nothing_in_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    cache = replace(config(), cache=str(tmp_path))
    monkeypatch.setattr("daceml.frontend.onnx_model.config", lambda: cache)
    wrong = ONNXModel(parse("g (float[2] x) => (float[3] y) { y = Relu(x) }"))
    with pytest.raises(ShapeError):
        wrong(torch.ones(2))
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
