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
    ControlFlowError,
    DacemlError,
    InvalidNodeError,
    OnnxFileError,
    ShapeError,
    UnheldValueError,
    UnknownOperatorError,
)
from daceml.frontend.onnx_import.onnx_process import OnnxProcess, OnnxProcessError
from daceml.module.onnx_model import ONNXModel
from tests.support.foreign_models import MLP, assert_refused, changed, imported, parse
from tests.support.golden import raises

# The graph


def rename(graph: onnx.GraphProto, node: int, side: str, name: str) -> None:
    getattr(graph.node[node], side)[0] = name


@pytest.mark.parametrize(
    ("change", "facts"),
    [
        (lambda g: rename(g, 0, "input", "ghost"), ["'MatMul'", "'ghost'"]),
        (lambda g: rename(g, 0, "input", "y"), ["'MatMul'", "'y'"]),
        (lambda g: rename(g, 1, "output", "h"), ["'Relu'", "'h'"]),
        (lambda g: rename(g, 1, "output", "x"), ["'Relu'", "'x'"]),
        (lambda g: rename(g, 2, "output", "z"), ["'y'"]),
        (lambda g: setattr(g.node[0], "op_type", ""), []),
        (lambda g: g.ClearField("output"), []),
        (lambda g: g.input.append(g.input[0]), ["'x'"]),
        (lambda g: g.initializer.append(g.initializer[0]), ["'w'"]),
        (lambda g: setattr(g.input[0], "name", ""), []),
        (lambda g: g.node[2].attribute.append(g.node[2].attribute[0]), ["'Softmax'", "'axis'", 2]),
        (
            lambda g: setattr(g.node[2].attribute[0], "type", AttributeProto.FLOAT),
            ["'Softmax'", "'axis'", "FLOAT", "'i'"],
        ),
        (lambda g: g.node[2].attribute[0].ClearField("type"), ["'Softmax'", "'axis'"]),
        (lambda g: setattr(g.node[2].attribute[0], "ref_attr_name", "a"), ["'Softmax'", "'axis'"]),
        (lambda g: setattr(g.node[2].attribute[0], "name", ""), ["'Softmax'"]),
    ],
    ids=[
        "undefined", "defined later", "defined twice", "defined as an input", "result undefined",
        "no operator", "no outputs", "inputs of one name", "initializers of one name", "input without a name",
        "attribute twice", "attribute of another type", "attribute without a type",
        "attribute of a function", "attribute without a name",
    ],
)  # fmt: skip
def test_graphs_that_are_none(change: Callable[[onnx.GraphProto], Any], facts: list[object]):
    assert_refused(changed(change), OnnxFileError, *facts)


@pytest.mark.parametrize(
    ("change", "facts"),
    [
        (lambda t: t.dims.append(2**40), [52776558133248, "raw_data", 48]),
        (lambda t: t.dims.append(2**62), [4611686018427387904]),
        (lambda t: t.dims.append(-1), ["[4, 3, -1]"]),
        (lambda t: setattr(t, "raw_data", t.raw_data[:-1]), [48, "raw_data", 47]),
        (lambda t: setattr(t, "raw_data", b""), ["[4, 3]", 12]),
        (lambda t: t.float_data.append(1.0), ["float_data", "raw_data"]),
        (lambda t: setattr(t, "data_type", TensorProto.STRING), ["STRING", "raw_data"]),
        (lambda t: setattr(t.segment, "begin", 1), ["segment"]),
        (lambda t: t.external_data.add(key="location", value="w.bin"), ["external"]),
    ],
    ids=[
        "long", "too long for a number", "negative", "a byte too few", "no data", "data in two places",
        "strings", "segments", "another file",
    ],
)  # fmt: skip
def test_tensors_whose_data_does_not_fit(change: Callable[[TensorProto], Any], facts: list[object]):
    assert_refused(changed(lambda graph: change(weight_of(graph))), OnnxFileError, "'w'", *facts)


def weight_of(graph: onnx.GraphProto) -> TensorProto:
    """The weight, whose numbers lie in raw_data."""
    tensor = graph.initializer[0]
    tensor.CopyFrom(onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(tensor), "w"))
    return tensor


def test_an_element_type_that_onnx_does_not_know():
    unknown = changed(lambda graph: setattr(weight_of(graph), "data_type", 99))
    assert_refused(unknown, OnnxFileError, "'w'", 99, onnx.__version__, exact=False)


def test_names_that_are_no_text():
    data = parse(MLP).SerializeToString()
    for word in (b"Relu", b"\x01w", b"\x01N"):  # of an operator, of a tensor, of a dimension
        assert word in data
        wrong = word[:-1] + b"\xff"
        model = onnx.ModelProto.FromString(data.replace(word, wrong))
        assert_refused(model, OnnxFileError, "UTF-8", wrong.lstrip(b"\x01"))


def test_an_empty_graph_hands_its_inputs_through():
    assert imported("g (float[2] x) => (float[2] x) { }").outputs == ("x",)


# Operators


def test_unknown_operators_and_opsets():
    version = onnx.__version__
    unknown = parse("g (float[2] x) => (float[2] y) { y = Frob(x) }")
    assert_refused(unknown, UnknownOperatorError, "Frob", version, exact=False)
    newest = onnx.defs.onnx_opset_version()
    for opset in (newest + 1, 0, 2**40):
        model = parse(MLP)
        model.opset_import[0].version = opset
        facts = f"opset {opset} ", version, f"1 to {newest}"
        assert_refused(model, UnknownOperatorError, *facts, exact=False)
    twice = parse(MLP)
    twice.opset_import.add(domain="ai.onnx", version=13)
    assert_refused(twice, OnnxFileError, "''", 2)
    future = parse(MLP)
    future.ir_version = 99
    assert_refused(future, OnnxFileError, "net", 99, version, onnx.IR_VERSION, exact=False)


def test_what_the_converter_cannot_convert_is_named():
    old = parse("g (float[2] x) => (float[2] y) { y = Scatter(x, x, x) }", opset=6)
    assert_refused(old, UnknownOperatorError, "opset 6", "Scatter", "onnx.version_converter", exact=False)


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
    ("operator", "graph"),
    [
        (
            "If",
            "g (bool c, float[2] x, int64[2] i) => (float[2] y) { y = If(c)"
            " <then_branch = t () => (float[2] a) { a = Gather(x, i) },"
            " else_branch = e () => (float[2] b) { b = Neg(x) }> }",
        ),
        (
            "Loop",
            "g (int64 n, bool c, float[2] x) => (float[2] y) { y = Loop(n, c, x)"
            " <body = b (int64 i, bool d, float[2] u) => (bool e, float[2] v)"
            " { e = Identity(d) v = Relu(u) }> }",
        ),
    ],
    ids=["If", "Loop"],
)
def test_bodies_are_refused(operator: str, graph: str):
    assert_refused(graph, ControlFlowError, operator)


def test_values_that_are_no_dense_tensors():
    sequence = "g (float[2] x) => (seq(float[2]) s) { s = SequenceConstruct(x) }"
    assert_refused(sequence, UnheldValueError, "'s'", "sequence")
    optional = "g (optional(float[2]) x) => (bool y) { y = OptionalHasElement(x) }"
    assert_refused(optional, UnheldValueError, "'x'", "optional")
    strings = "g (string[2] x) => (string[2] y) { y = Identity(x) }"
    assert_refused(strings, UnheldValueError, "'x'", "string")

    def sparse(graph: onnx.GraphProto) -> None:
        graph.sparse_initializer.add(dims=[4, 3]).values.CopyFrom(graph.initializer[0])
        del graph.initializer[:]

    assert_refused(changed(sparse), ShapeError, "'w'", "sparse")
    text = 'g (float[2] x) => (float[2] y) { c = Constant<value_string = "a">() y = Add(x, c) }'
    assert_refused(text, UnheldValueError, "Constant", "string")


def test_constants_of_the_wrong_kind():
    model = parse("g (float[2] x) => (float[2] y) { c = Constant<value_float = 1.0>() y = Add(x, c) }")
    model.graph.node[0].attribute[0].CopyFrom(helper.make_attribute("value", [1.0, 2.0]))
    assert_refused(model, InvalidNodeError, "'value'", "Constant", "TENSOR")


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
    assert_refused(functions({"F0": ["F0"]}), OnnxFileError, "F0 -> F0")
    circle = functions({"F0": ["F1", "F1"], "F1": ["F2"], "F2": ["F0"]})
    assert_refused(circle, OnnxFileError, "F0", "F1", "F2")


def test_functions_that_stand_for_more_nodes_than_memory_holds():
    """Forty functions, each of which calls the next one twice: a thousand billion nodes."""
    many = functions({f"F{i}": [f"F{i + 1}"] * 2 for i in range(40)} | {"F40": []})
    start = time.monotonic()
    assert_refused(many, OnnxFileError, 1000000)
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
        with raises(OnnxProcessError, "signal 9", onnx.__version__, exact=False):
            process.infer_shapes(parse(MLP))
        assert process.infer_shapes(parse(MLP)).graph.output[0].name == "y", "a new one was started"


def test_a_process_that_does_not_answer_is_ended():
    with (
        OnnxProcess(time_limit_s=0.0) as process,
        raises(OnnxProcessError, "0 s", onnx.__version__, exact=False),
    ):
        process.infer_shapes(parse(MLP))


# What is left behind


def test_a_refused_model_leaves_nothing_in_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    cache = replace(config(), cache=str(tmp_path))
    monkeypatch.setattr("daceml.module.onnx_model.config", lambda: cache)
    wrong = ONNXModel(parse("g (float[2] x) => (float[3] y) { y = Relu(x) }"))
    with raises(ShapeError, "'y'", "float [3]", "float [2]"):
        wrong(torch.ones(2))
    left = [file for file in tmp_path.rglob("*") if file.is_file() and file.suffix != ".lock"]
    assert [file.name for file in left] == ["CACHEDIR.TAG"]  # says whose folder it is


def test_metadata_of_our_own_exporter_has_no_power_in_a_foreign_file():
    """A file may not name its inputs' parameters, nor let results replace them."""
    model = parse(MLP)
    model.metadata_props.add(key="daceml.parameters", value='["w", "nothing"]')
    model.metadata_props.add(key="daceml.buffer_mutations", value='{"y": "w"}')
    compiled = ONNXModel(model, dims={"N": 1})
    first, second = compiled(torch.ones(1, 4)), compiled(torch.ones(1, 4))
    assert first.shape == (1, 3) and torch.equal(first, second)
    with raises(CallError, "'x'", "(2, 4)", "(1, 4)"):
        compiled(torch.ones(2, 4))
