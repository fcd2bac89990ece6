"""Control flow whose way is known is part of the network, with gradients; the rest runs outside."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.checker
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from daceml.errors import ControlFlowError, ShapeError
from daceml.frontend.onnx_import.control_flow import inline_control_flow
from daceml.frontend.onnx_import.inlining import MOST_TRIPS
from daceml.module.onnx_model import ONNXModel
from tests.support.foreign_models import assert_refused, imported, parse

BODIES = ("If", "Loop", "Scan")


def constants(**values: object) -> list[onnx.NodeProto]:
    return [
        helper.make_node("Constant", [], [name], value=numpy_helper.from_array(np.asarray(value), name))
        for name, value in values.items()
    ]


def floats(name: str, *shape: int | str) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


def model(nodes: list[onnx.NodeProto], outputs: list[onnx.ValueInfoProto], *shape: int) -> onnx.ModelProto:
    """A model of one input x."""
    graph = helper.make_graph(nodes, "g", [floats("x", *shape)], outputs)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    onnx.checker.check_model(made)
    return made


def agree(made: onnx.ModelProto, *shape: int) -> list[str]:
    """What is left of control flow is nothing, and ONNX Runtime computes the same; gives the operators."""
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    flat = inline_control_flow(made)
    onnx.checker.check_model(flat, full_check=True)
    operators = [node.op_type for node in flat.graph.node]
    assert not set(operators).intersection(BODIES)
    imported(made)
    found, wanted = (
        onnxruntime.InferenceSession(m.SerializeToString(), providers=["CPUExecutionProvider"]).run(
            None, {"x": x}
        )
        for m in (flat, made)
    )
    for ours, theirs in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    return operators


def scan(**attributes: object) -> onnx.ModelProto:
    """s = s y + x[i], results s and s - w; w is an initializer of the body, y a value around it."""
    body = helper.make_graph(
        [
            helper.make_node("Mul", ["s", "y"], ["scaled"]),
            helper.make_node("Add", ["scaled", "part"], ["after"]),
            helper.make_node("Sub", ["after", "w"], ["out"]),
        ],
        "body",
        [floats("s", 3), floats("part", 3)],
        [floats("after", 3), floats("out", 3)],
        [numpy_helper.from_array(np.array([1, 2, 3], np.float32), "w")],
    )
    nodes = [
        *constants(start=np.zeros(3, np.float32), y=np.float32(0.5)),
        helper.make_node("Scan", ["start", "x"], ["last", "all"], num_scan_inputs=1, body=body, **attributes),
    ]
    every = (3, 4) if "scan_output_axes" in attributes else (4, 3)
    return model(nodes, [floats("last", 3), floats("all", *every)], 4, 3)


def loop(trips: int, condition: bool = True, stops: bool = False) -> onnx.ModelProto:
    """s = s x + i, and every s; stopped by nobody, or where x says so."""
    body = helper.make_graph(
        [
            helper.make_node("Cast", ["i"], ["number"], to=TensorProto.FLOAT),
            helper.make_node("Mul", ["s", "x"], ["scaled"]),
            helper.make_node("Add", ["scaled", "number"], ["after"]),
            *(
                [
                    helper.make_node("ReduceSum", ["after"], ["total"], keepdims=0),
                    helper.make_node("Less", ["total", "most"], ["goes"]),
                ]
                if stops
                else [helper.make_node("Identity", ["going"], ["goes"])]
            ),
            helper.make_node("Identity", ["after"], ["every"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("going", TensorProto.BOOL, []),
            floats("s", 2),
        ],
        [helper.make_tensor_value_info("goes", TensorProto.BOOL, []), floats("after", 2), floats("every", 2)],
    )
    nodes = [
        *constants(
            trips=np.int64(trips),
            condition=np.bool_(condition),
            start=np.ones(2, np.float32),
            most=np.float32(9),
        ),
        helper.make_node("Loop", ["trips", "condition", "start"], ["last", "all"], body=body),
    ]
    return model(nodes, [floats("last", 2), floats("all", "N", 2)], 2)


@pytest.mark.parametrize(
    "attributes",
    [
        {},
        {"scan_input_directions": [1], "scan_output_directions": [1]},
        {"scan_output_axes": [1]},
        {"scan_output_axes": [-1], "scan_input_directions": [1]},
    ],
)
def test_a_scan_over_a_static_length_is_its_steps(attributes: dict[str, object]):
    operators = agree(scan(**attributes), 4, 3)
    assert operators.count("Mul") == 4
    assert operators.count("Constant") < 10, "an initializer of the body is there once"


def test_a_scan_is_compiled():
    x = np.random.default_rng(0).standard_normal((4, 3)).astype(np.float32)
    made = scan()
    compiled = ONNXModel(made)
    session = onnxruntime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    for ours, theirs in zip(compiled(x), session.run(None, {"x": x}), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)
    assert compiled.program, "it does not run outside"


def test_a_loop_with_a_constant_count_is_its_steps():
    assert agree(loop(3), 2).count("Mul") == 3


@pytest.mark.parametrize(
    "made", [loop(MOST_TRIPS + 1), loop(3, condition=False), loop(3, stops=True), loop(0)]
)
def test_a_loop_that_is_long_or_may_not_run_stays(made: onnx.ModelProto):
    assert inline_control_flow(made) is made
    assert_refused(made, ControlFlowError, "Loop")


@pytest.mark.parametrize(("condition", "operator"), [(1, "Neg"), (0, "Abs")])
def test_a_branch_with_a_constant_condition_is_its_nodes(condition: int, operator: str):
    made = parse(
        f"""g (float[3] x) => (float[3] y) <bool c = {{{condition}}}> {{
            z = Exp(x)
            y = If (c) <
              then_branch = t () => (float[3] a) {{ b = Neg(z) a = Relu(b) }},
              else_branch = e () => (float[3] a) {{ b = Abs(z) a = Relu(b) }}>
        }}"""
    )
    operators = agree(made, 3)
    assert operator in operators and not {"Neg", "Abs"} - {operator} & set(operators)


def test_a_branch_within_a_branch_sees_what_is_around_both():
    made = parse(
        """g (float[3] x) => (float[3] y) <bool c = {1}> {
            y = If (c) <
              then_branch = t () => (float[3] a) {
                b = Neg(x)
                a = If (c) <
                  then_branch = tt () => (float[3] a2) { a2 = Add(b, x) },
                  else_branch = te () => (float[3] a3) { a3 = Sub(b, x) }>
              },
              else_branch = e () => (float[3] a4) { a4 = Abs(x) }>
        }"""
    )
    assert agree(made, 3)[:2] == ["Neg", "Add"]


def choice(
    then: str, otherwise: str, *, condition: str = "bool c", output: str = "float[3] y"
) -> onnx.ModelProto:
    """A model of x and a condition, which chooses between two branches."""
    return parse(
        f"""g (float[3] x, {condition}) => ({output}) {{
            z = Exp(x)
            y = If (c) <
              then_branch = t () => (float[3] a) {{ {then} }},
              else_branch = e () => (float[3] a) {{ {otherwise} }}>
        }}"""
    )


@pytest.mark.parametrize("condition", ["bool c", "bool[1] c"])
def test_a_condition_that_is_data_chooses_between_cheap_branches(condition: str):
    made = choice("b = Div(z, x) a = Relu(b)", "a = Log(x)", condition=condition)
    compiled = ONNXModel(made)
    x = np.array([-1, 0, 2], np.float32)
    session = onnxruntime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    for way in (True, False):
        given = np.full((1,) if "[1]" in condition else (), way)
        ours, (theirs,) = compiled(x, given), session.run(None, {"x": x, "c": given})
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)
    assert compiled.program, "it does not run outside"


def test_what_a_branch_declares_is_compared_with_what_it_makes():
    made = choice("a = Concat<axis = 0>(x, x)", "a = Log(x)")
    assert_refused(made, ShapeError, "'a__0'", "float [3]", "float [6]")


@pytest.mark.parametrize(
    "branch",
    ["w = Constant<value = int64[3] {0, 1, 9}>() a = Gather(x, w)", "a = RandomNormalLike(x)"],
    ids=["reads by position", "draws"],
)
def test_a_branch_that_may_fail_or_draws_is_not_computed_where_it_is_not_taken(branch: str):
    made = choice(branch, "a = Log(x)")
    assert inline_control_flow(made) is made


def test_branches_of_different_sizes_are_left_alone():
    made = parse(
        """g (float[3] x, bool c) => (float[n] y) {
            y = If (c) <
              then_branch = t () => (float[3] a) { a = Neg(x) },
              else_branch = e () => (float[6] a) { a = Concat<axis = 0>(x, x) }>
        }"""
    )
    assert inline_control_flow(made) is made


def test_positions_within_the_steps_of_a_loop_are_constants():
    made = parse(
        """g (float[4] x) => (float[1] last, float[4, 1] all)
        <int64 trips = {4}, bool go = {1}, float[1] start = {0}, int64[1] one = {1}, int64[1] flat = {1}> {
            last, all = Loop (trips, go, start) <body = b (int64 i, bool g_in, float[1] s) =>
                (bool g_out, float[1] t, float[1] u) {
                g_out = Identity(g_in)
                first = Reshape(i, flat)
                behind = Add(first, one)
                part = Slice(x, first, behind)
                t = Add(s, part)
                u = Identity(t)
            }>
        }"""
    )
    network = imported(made)
    assert not [n for n in network.state.nodes() if getattr(n, "op_type", "") in ("Reshape", "Loop")]
    compiled = ONNXModel(made)
    x = np.arange(4, dtype=np.float32)
    last, steps = compiled(x)
    np.testing.assert_array_equal(last, [6])
    np.testing.assert_array_equal(steps[:, 0], [0, 1, 3, 6])
    assert compiled.program, "it does not run outside"
