"""ONNX models become networks, or errors that say what, where, why and what to do."""

from __future__ import annotations

import json
import sys
from typing import Any

import dace
import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper

from daceml.errors import (
    ControlFlowError,
    DacemlError,
    InvalidNodeError,
    OnnxFileError,
    ShapeError,
    UnheldValueError,
    UnknownOperatorError,
)
from daceml.frontend.onnx_import.importer import import_model
from daceml.onnx_ops.schema import nodes
from daceml.onnx_ops.schema.node import ONNXNode
from daceml.onnx_ops.schema.operands import operands
from daceml.onnx_ops.schema.schema import Attribute, Formal, OperatorSchema
from daceml.sdfg.network import Network
from tests.support.golden import raises


def parse(graph: str, *, opset: int = 20, more: str = "", functions: str = "") -> onnx.ModelProto:
    """A model from ONNX's own text form."""
    return onnx.parser.parse_model(
        f'<ir_version: 9, opset_import: ["" : {opset}{more}]>\n{graph}\n{functions}'
    )


def imported(graph: str, **options: Any) -> Network:
    network = import_model(parse(graph, **options), name="model")
    network.sdfg.validate()
    return network


def operators(network: Network) -> list[ONNXNode]:
    return [node for node in network.state.nodes() if isinstance(node, ONNXNode)]


def assert_refused(
    model: onnx.ModelProto | ir.Model | str,
    kind: type[DacemlError],
    *facts: object,
    exact: bool = True,
    **options: Any,
) -> None:
    """The importer's error is of a kind, names these facts, and has a place, a reason and a way out."""
    model = parse(model) if isinstance(model, str) else model
    with raises(kind, *facts, exact=exact) as caught:
        import_model(model, name="model", **options)
    assert caught.value.where and caught.value.why and caught.value.fix


def test_a_chain_of_operators():
    network = imported("""
        mlp (float[N, 4] x, float[4, 3] w, float[3] b) => (float[N, 3] y)
        { h = MatMul(x, w)  z = Add(h, b)  y = Softmax<axis = 1>(z) }""")
    assert network.inputs == ("x", "w", "b") and network.outputs == ("y",)
    assert [node.op_type for node in operators(network)] == ["MatMul", "Add", "Softmax"]
    arrays = network.sdfg.arrays
    assert [arrays[name].transient for name in ("x", "h", "z", "y")] == [False, True, True, False]
    n = dace.symbol("N", dace.int64, positive=True)
    assert arrays["h"].shape == (n, 3) and network.sdfg.symbols["N"] == dace.int64
    add = operators(network)[1]
    assert operands(add, network.state, network.sdfg).inputs == {"A": "h", "B": "b"}
    assert operators(network)[2].attribute_values() == {"axis": 1}
    (edge,) = [edge for edge in network.state.in_edges(add) if edge.dst_conn == "A"]
    assert str(edge.data.subset) == "0:N, 0:3"


def test_each_value_has_one_access_node_and_may_have_many_readers():
    network = imported("g (float[2] x) => (float[2] y) { a = Mul(x, x)  b = Exp(a)  y = Add(a, b) }")
    labels = [node.data for node in network.state.data_nodes()]
    assert sorted(labels) == ["a", "b", "x", "y"]


def test_names_are_mended_and_remembered():
    network = imported("""
        g (float[2] "x.1", float[2] "lambda") => (float[2] "/out/0")
        { "x_1" = Neg("x.1")  "/out/0" = Add("x_1", "lambda") }
        """)  # fmt: skip
    assert network.inputs == ("x_1", "lambda_") and network.outputs == ("out_0",)
    assert network.signature == {"x_1": "x.1", "lambda_": "lambda", "out_0": "/out/0", "x_1_1": "x_1"}


def test_rank_zero_is_an_array_of_one_element():
    network = imported(
        "g (float x, float[1] v) => (float y) { s = Add(x, x) r = Add(s, v) y = ReduceSum<keepdims = 0>(r) }"
    )
    assert network.scalars == {"x", "s", "y"}
    assert network.sdfg.arrays["x"].shape == (1,) and "v" not in network.scalars


def test_absent_optional_operands_have_no_connector():
    network = imported("g (float[2] x, float high) => (float[2] y) { y = Clip(x, , high) }")
    (clip,) = operators(network)
    assert list(clip.in_connectors) == ["input", "max"]


def test_variadic_operands_and_several_results():
    network = imported("""
        g (float[6] x) => (float[2] b, float[6] c)
        { a, b, d = Split<axis = 0, num_outputs = 3>(x)  c = Concat<axis = 0>(d, a, b) }""")
    split, concat = operators(network)
    assert list(split.out_connectors) == ["outputs__0", "outputs__1", "outputs__2"]
    assert operands(concat, network.state, network.sdfg).inputs["inputs"] == ("d", "a", "b")


def test_unnamed_results_are_dropped():
    network = imported(
        "g (float[1, 2, 4] x) => (float[1, 2, 2] y) { y = MaxPool<kernel_shape = [2], strides = [2]>(x) }"
    )
    (pool,) = operators(network)
    assert list(pool.out_connectors) == ["Y"]


def test_initializers_and_constant_nodes_are_constants():
    network = imported("""
        g (float[2, 6] x) => (float[3, 4] y)
        <float[1] scale = {2.0}, float[1] unused = {1.0}, int64[1] x_unused = {3}>
        { shape = Constant<value_ints = [3, 4]>()  one = Constant<value_float = 1.0>()
          dead = Constant<value_int = 5>()  a = Mul(x, scale)  b = Add(a, one)  y = Reshape(b, shape) }""")
    assert set(network.constants) == {"scale", "shape", "one"} and network.inputs == ("x",)
    assert network.constants["shape"].tolist() == [3, 4]
    assert network.constants["one"].shape == (1,) and "one" in network.scalars
    assert not network.sdfg.arrays["shape"].transient
    assert set(network.sdfg.arrays) == {"x", "scale", "shape", "one", "a", "b", "y"}


def test_an_input_with_a_default_is_a_constant():
    network = imported("g (float[2] x, float[2] w = {1.0, 2.0}) => (float[2] y) { y = Mul(x, w) }")
    assert network.inputs == ("x",) and set(network.constants) == {"w"}


@pytest.mark.parametrize("returned", [("x",), ("w",), ("y", "y"), ("y", "x", "y", "w")])
def test_outputs_may_be_inputs_constants_or_repeat(returned: tuple[str, ...]):
    weight = helper.make_tensor("w", TensorProto.FLOAT, [2], [1.0, 2.0])
    info = {name: helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in "xyw"}
    graph = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["y"])],
        "g",
        [info["x"]],
        [info[name] for name in returned],
        [weight],
    )
    network = import_model(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]), name="model"
    )
    network.sdfg.validate()
    assert network.outputs == returned and network.inputs == ("x",)
    assert ("w" in network.constants) == ("w" in returned)


def test_an_unread_input_is_kept_without_access_node():
    network = imported("g (float[2] x, float[3] unread) => (float[2] y) { y = Relu(x) }")
    assert network.inputs == ("x", "unread") and "unread" in network.sdfg.arrays


def daceml_model() -> ir.Model:
    """As the exporter makes it: a batch norm's running mean, whose new value is an output of the graph."""
    proto = parse("""
        g (float[3] x) => (float[3] y, float[3] "bn.mean::next")
        <float[3] "bn.mean" = {0.0, 0.0, 0.0}, float[3] "fc.weight" = {1.0, 2.0, 3.0}, float[1] eps = {0.5}>
        { y = Mul(x, "fc.weight")  s = Add(y, eps)  "bn.mean::next" = Add("bn.mean", s) }""")
    model = ir.from_proto(proto)
    model.metadata_props["daceml.parameters"] = json.dumps(["fc.weight"])
    model.metadata_props["daceml.buffers"] = json.dumps(["bn.mean"])
    model.metadata_props["daceml.buffer_mutations"] = json.dumps({"bn.mean::next": "bn.mean"})
    node = next(iter(model.graph))
    node.name = "/fc/Mul"
    node.metadata_props.update({"daceml.module": "head.fc", "daceml.source": "model.py:41"})
    return model


def test_metadata_names_parameters_buffers_mutations_and_origins():
    network = import_model(daceml_model(), name="my-model")
    assert network.sdfg.name == "my_model"
    assert network.weights == {"bn_mean": "bn.mean", "fc_weight": "fc.weight"}
    assert list(network.constants) == ["eps"]
    assert network.outputs == ("y",) and network.mutations == {"bn_mean_next": "bn_mean"}
    assert not network.sdfg.arrays["bn_mean_next"].transient
    mul = operators(network)[0]
    assert (mul.module_path, mul.source, mul.onnx_name) == ("head.fc", "model.py:41", "/fc/Mul")


def test_data_of_parameters_is_never_read():
    model = daceml_model()

    def touched() -> ir.TensorProtocol:
        raise AssertionError("parameter data was read")

    for name in ("bn.mean", "fc.weight"):
        lazy = ir.LazyTensor(touched, dtype=ir.DataType.FLOAT, shape=ir.Shape([3]), name=name)
        model.graph.initializers[name].const_value = lazy
    for value in next(iter(model.graph)).outputs:
        value.shape = None  # so that shape inference has to run, too
    assert import_model(model, name="model").sdfg.arrays["fc_weight"].shape == (3,)


def test_the_given_model_is_not_changed():
    model = daceml_model()
    before = ir.to_proto(model).SerializeToString(deterministic=True)
    import_model(model, name="model")
    assert ir.to_proto(model).SerializeToString(deterministic=True) == before


def test_origins_of_torch_exports_are_read():
    model = ir.from_proto(parse("g (float[2] x) => (float[2] y) { y = Relu(x) }"))
    next(iter(model.graph)).metadata_props.update({
        "pkg.torch.onnx.name_scopes": "['', 'layer1', 'layer1.act', 'relu']",
        "pkg.torch.onnx.stack_trace": 'File "/outer.py", line 3\nFile "/a/model.py", line 12, in forward',
    })  # fmt: skip
    (relu,) = operators(import_model(model, name="model"))
    assert (relu.module_path, relu.source) == ("layer1.act", "model.py:12")


# Symbolic shapes


@pytest.mark.parametrize(
    ("text", "value"),
    [("2*N", 14), ("N//2", 3), ("floor(N/2)", 3), ("N + M", 12), ("N-M", 2), ("Max(N, M)", 7), ("N % 4", 3)],
)
def test_dimensions_may_be_expressions(text: str, value: int):
    infos = [
        helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("x", ["N", "M"]), ("y", [text]))
    ]
    shape = helper.make_tensor_value_info("s", TensorProto.INT64, [1])
    graph = helper.make_graph(
        [helper.make_node("Reshape", ["x", "s"], ["y"])], "g", [infos[0], shape], infos[1:]
    )
    network = import_model(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]), name="model"
    )
    (dim,) = network.sdfg.arrays["y"].shape
    assert dace.symbolic.evaluate(dim, {dace.symbol("N"): 7, dace.symbol("M"): 5}) == value


def test_odd_names_of_dimensions_become_symbols():
    infos = [
        helper.make_tensor_value_info(n, TensorProto.FLOAT, ["batch-size", "lambda", "shape", "x"])
        for n in "xy"
    ]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", infos[:1], infos[1:])
    network = import_model(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]), name="model"
    )
    network.sdfg.validate()
    assert sorted(network.sdfg.symbols) == ["batch_size", "dim_shape", "lambda_", "x"]
    assert network.inputs == ("x_1",) and network.signature["x_1"] == "x"
    restored = dace.SDFG.from_json(network.sdfg.to_json())
    assert [str(dim) for dim in restored.arrays["y"].shape] == ["batch_size", "lambda_", "dim_shape", "x"]


RESHAPED = """
    g (float[batch, 2, 6] x) => (float[a, b] y)
    <int64[1] first = {0}, int64[1] rest = {-1}>
    { s = Shape(x)  n = Gather<axis = 0>(s, first)  two = Add(n, n)  half = Div(two, two)  m = Mul(n, half)
      t = Concat<axis = 0>(m, rest)  y = Reshape(x, t) }"""


def test_values_of_named_dimensions_can_be_given():
    network = import_model(parse(RESHAPED), name="model", dims={"batch": 4})
    assert network.sdfg.arrays["x"].shape == (4, 2, 6) and network.sdfg.arrays["y"].shape == (4, 12)
    assert not network.sdfg.symbols
    assert_refused(RESHAPED, ShapeError, "'bacth'", "batch", dims={"bacth": 4})


def test_an_unknown_dimension_names_tensor_node_and_mend():
    mend = 'import_model(..., dims={"batch": 8})'
    assert_refused(RESHAPED, ShapeError, "dimension 0", "'y'", "Reshape", mend)
    assert_refused(
        "g (float[4] x) => (int64[1, k] y) { y = NonZero(x) }", ShapeError, "dimension 1", "'y'", "NonZero"
    )


def test_the_open_dimension_of_a_reshape_follows_from_the_number_of_elements():
    network = imported("g (float[N, M, 6] x, int64[3] s) => (float[k, 2, 3] y) { y = Reshape(x, s) }")
    assert network.sdfg.arrays["y"].shape[1:] == (2, 3)
    assert {str(free) for free in network.sdfg.arrays["y"].shape[0].free_symbols} == {"M", "N"}
    unknown = "g (float[N, 3] x, int64[2] s) => (float[k, 2] y) { y = Reshape(x, s) }"
    assert_refused(unknown, ShapeError, "dimension 0", "'y'", "Reshape")


def test_missing_shapes_are_inferred():
    network = imported("""
        g (float[N, 3, 8, 8] x, float[4, 3, 3, 3] w) => (float[N, 4] y)
        { c = Conv<pads = [1, 1, 1, 1]>(x, w)  p = GlobalAveragePool(c)  y = Flatten(p) }""")
    assert [str(dim) for dim in network.sdfg.arrays["c"].shape] == ["N", "4", "8", "8"]


# What cannot be imported


def test_unknown_operators_domains_and_opsets():
    version = onnx.__version__
    unknown = "g (float[2] x) => (float[2] y) { y = Frobnicate(x) }"
    assert_refused(unknown, UnknownOperatorError, "Frobnicate", version, exact=False)
    other = "g (float[2] x) => (float[2] y) { y = com.example.Op(x) }"
    model = parse(other, more=', "com.example" : 1')
    assert_refused(model, UnknownOperatorError, "com.example.Op", version, exact=False)
    assert_refused(other, UnknownOperatorError, "Op", "'com.example'", "{'': 20}")
    model = parse("g (float[2] x) => (float[2] y) { y = Relu(x) }", opset=999)
    newest = onnx.defs.onnx_opset_version()
    assert_refused(model, UnknownOperatorError, "opset 999", version, f"1 to {newest}", exact=False)
    deprecated = "g (float[2] x) => (float[2] y) { y = Scatter(x, x, x) }"
    assert_refused(deprecated, UnknownOperatorError, "Scatter", "opset 20", "opset 11")


def test_control_flow_is_refused():
    branch = """
        g (bool c, float[2] x, int64[2] i) => (float[2] y)
        { y = If(c) <then_branch = t () => (float[2] a) { a = Gather(x, i) },
                     else_branch = e () => (float[2] b) { b = Exp(x) }> }
        """
    assert_refused(branch, ControlFlowError, "If", "then_branch")


def test_sequences_strings_and_small_floats_are_refused():
    sequence = "g (float[2] x) => (seq(float[2]) y) { y = SequenceConstruct(x) }"
    assert_refused(sequence, UnheldValueError, "'y'", "sequence")
    assert_refused("g (string[2] x) => (bool[2] y) { y = Equal(x, x) }", UnheldValueError, "'x'", "string")
    small = "g (float[2] x) => (float8e4m3fn[2] y) { y = Cast<to = 17>(x) }"
    assert_refused(small, ShapeError, "'y'", "float8e4m3fn", "bfloat16")
    text = 'g () => (string y) { y = Constant<value_string = "a">() }'
    assert_refused(text, UnheldValueError, "Constant", "string")


@pytest.mark.parametrize(
    ("body", "facts"),
    [
        ("y = Relu<slope = 1>(x)", ["Relu-14", "'slope'"]),
        ("y = Relu(x, x)", ["Relu-14", 1, "x, x"]),
        ("y = Add(x)", ["Add-14", "'B'"]),
        ("y = Cast(x)", ["Cast-19", "'to'"]),
        ("y = Softmax<axis = 1.5>(x)", ["Softmax-13", "'axis'", "int", "float"]),
        ("y = Add(x, i)", ["Add-14", "float", "int64"]),
    ],
    ids=["attribute", "an input too many", "an input too few", "no attribute", "kind", "types"],
)
def test_nodes_that_break_their_schema(body: str, facts: list[object]):
    model = parse(f"g (float[2] x, int64[2] i) => (float[2] y) {{ {body} }}")
    assert_refused(model, InvalidNodeError, *facts)


@pytest.mark.parametrize(
    ("body", "name"),
    [
        ("y = Relu(ghost)", "'ghost'"),
        ("y = Relu(h)  h = Neg(x)", "'h'"),
        ("h = Neg(x)", "'y'"),
    ],
    ids=["undefined", "defined later", "undefined result"],
)
def test_malformed_graphs(body: str, name: str):
    assert_refused(f"g (float[2] x) => (float[2] y) {{ {body} }}", OnnxFileError, name)


def test_a_value_that_is_defined_twice():
    """The library that reads models says so."""
    text = "g (float[2] x) => (float[2] y) { h = Neg(x)  h = Exp(x)  y = Relu(h) }"
    assert_refused(text, OnnxFileError, "'h'", "'Exp'", exact=False)


def test_old_opsets_are_converted_or_refused():
    network = imported("g (float[2, 3] x) => (float[2, 3] y) { y = Clip<max = 1.0, min = 0.0>(x) }", opset=7)
    assert [node.since_version for node in operators(network) if node.op_type == "Clip"] == [13]
    model = parse(
        "g (float[2] x) => (float[2] y) { y = com.example.Op(x) }", opset=7, more=', "com.example" : 1'
    )
    assert_refused(model, UnknownOperatorError, "com.example.Op", exact=False)  # with onnx's reasons
    model = parse("g (float[2] x) => (float[2] y) { y = Scatter(x, x, x) }", opset=6)
    assert_refused(model, UnknownOperatorError, "opset 6", "Scatter", "onnx.version_converter", exact=False)


# Local functions

SWISH = """
    <domain: "DOMAIN", opset_import: ["" : 20]>
    Swish (x) => (y) { s = Sigmoid(x)  y = Mul(x, s) }"""


def test_local_functions_are_inlined():
    model = parse(
        "g (float[2] x) => (float[2] y) { y = local.Swish(x) }", more=', "local" : 1',
        functions=SWISH.replace("DOMAIN", "local"),
    )  # fmt: skip
    for given in (model, ir.from_proto(model)):
        network = import_model(given, name="model")
        assert [node.op_type for node in operators(network)] == ["Sigmoid", "Mul"]


def test_a_composite_with_a_class_stays_whole():
    formal = Formal(name="x", connector="x"), Formal(name="y", connector="y")
    schema = OperatorSchema(
        op_type="Swish",
        domain="daceml.test2",
        inputs=formal[:1],
        outputs=formal[1:],
        attributes={"beta": Attribute(name="beta", kind="float", default=1.0)},
    )
    nodes.define_operator(schema, module=__name__)
    network = imported(
        "g (float[2] x) => (float[2] y) { h = daceml.test2.Swish(x)  y = Relu(h) }",
        more=', "daceml.test2" : 1',
        functions=SWISH.replace("DOMAIN", "daceml.test2"),
    )
    assert [node.op_type for node in operators(network)] == ["Swish", "Relu"]
    assert network.sdfg.arrays["h"].shape == (2,)


# Everything together


def encoder(layers: int) -> onnx.ModelProto:
    """Attention and feed-forward blocks as an exporter writes them, without declared shapes."""
    built, weights = [], {}

    def op(op_type: str, *inputs: str, **attributes: Any) -> str:
        built.append(helper.make_node(op_type, inputs, [f"/{op_type}_{len(built)}"], **attributes))
        return built[-1].output[0]

    def weight(*shape: int) -> str:
        weights[f"w.{len(weights)}"] = np.zeros(shape, np.float32)
        return f"w.{len(weights) - 1}"

    weights["split"], weights["join"] = np.array([0, 0, 4, 16]), np.array([0, 0, 64])
    x = "x"
    for _ in range(layers):
        q, k, v = (op("Add", op("MatMul", x, weight(64, 64)), weight(64)) for _ in range(3))
        q, v = (op("Transpose", op("Reshape", t, "split"), perm=[0, 2, 1, 3]) for t in (q, v))
        k = op("Transpose", op("Reshape", k, "split"), perm=[0, 2, 3, 1])
        attention = op("Softmax", op("Div", op("MatMul", q, k), weight()), axis=-1)
        mixed = op("Reshape", op("Transpose", op("MatMul", attention, v), perm=[0, 2, 1, 3]), "join")
        x = op(
            "LayerNormalization", op("Add", op("MatMul", mixed, weight(64, 64)), x), weight(64), weight(64)
        )
        h = op("Add", op("MatMul", x, weight(64, 256)), weight(256))
        h = op("Mul", op("Mul", h, op("Add", op("Erf", op("Div", h, weight())), weight())), weight())
        x = op("Add", op("MatMul", h, weight(256, 64)), x)
        x = op("LayerNormalization", x, weight(64), weight(64))
    graph = helper.make_graph(
        built, "encoder", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 16, 64])],
        [helper.make_tensor_value_info(x, TensorProto.FLOAT, None)],
        [onnx.numpy_helper.from_array(array, name) for name, array in weights.items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)])


def calls_of_import(layers: int) -> int:
    """Calls of Python functions while an encoder is imported: the work, whatever else the machine does."""
    model, count = encoder(layers), 0

    def count_call(frame: object, event: str, argument: object) -> None:
        nonlocal count
        count += event == "call"

    sys.setprofile(count_call)
    try:
        import_model(model, name="encoder")
    finally:
        sys.setprofile(None)
    return count


def test_the_work_of_an_import_grows_with_the_number_of_layers():
    import_model(encoder(1), name="encoder")  # modules are loaded, caches are filled
    of_one, of_three, of_nine = (calls_of_import(layers) for layers in (1, 3, 9))
    a_layer = (of_three - of_one) / 2
    assert of_nine < 1.1 * (of_one + 8 * a_layer)


def test_a_network_survives_storage():
    network = import_model(encoder(1), name="encoder")
    (state,) = dace.SDFG.from_json(network.sdfg.to_json()).states()
    before = [(type(n), n.attribute_values()) for n in operators(network)]
    assert [(type(n), n.attribute_values()) for n in state.nodes() if isinstance(n, ONNXNode)] == before


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # the suite computes log(0) and casts out of range
def test_every_case_of_the_onnx_node_suite_imports_or_is_refused_with_a_reason():
    from onnx.backend.test.loader import load_node_model_tests

    imported_count, refused = 0, []
    for case in load_node_model_tests():
        try:
            network = import_model(case.model, name=case.name)
        except (ShapeError, InvalidNodeError) as error:
            refused.append(error)
            continue
        network.sdfg.validate()
        assert len(network.inputs) == len(case.model.graph.input)
        assert len(network.outputs) == len(case.model.graph.output)
        imported_count += 1
    # onnx 1.23: 1591 of 1884; the others hold strings, 8-bit and smaller floats, sequences, control flow, or
    # results whose size depends on data.
    assert all(error.where and error.why and error.fix for error in refused)
    assert imported_count / (imported_count + len(refused)) > 0.8
