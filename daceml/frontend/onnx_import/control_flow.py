"""Control flow as dataflow: constant conditions, loops with constant counts, choices between cheap branches.

Their bodies become nodes of the graph around them, so that they are lowered, fused and differentiated like
any others. What depends on data otherwise stays, and makes the whole model run outside.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
from onnx import helper, numpy_helper

from daceml.frontend.onnx_import.flex_attention import flex_attention
from daceml.frontend.onnx_import.inlining import STANDARD, Graph, Rules, attribute_of, named, sizes

# Its Scan has a batch dimension before
_SCAN_OPSET = 9

# A branch that is not taken is computed all the same: nothing in it may fail, whatever the data, or take long
_TOTAL = frozenset(
    """
    Abs Acos Acosh Add And Asin Asinh Atan Atanh Cast CastLike Ceil Celu Clip Concat Constant Cos Cosh Div
    Elu Equal Erf Exp Expand Flatten Floor Gelu Greater GreaterOrEqual HardSigmoid HardSwish Identity IsInf
    IsNaN LeakyRelu Less LessOrEqual Log LogSoftmax Max Mean Min Mish Mod Mul Neg Not Or PRelu Pow
    Reciprocal ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd
    ReduceSum ReduceSumSquare Relu Reshape Round Selu Shape Shrink Sigmoid Sign Sin Sinh Size Slice Softmax
    Softplus Softsign Split Sqrt Squeeze Sub Sum Swish Tan Tanh ThresholdedRelu Tile Transpose Unsqueeze
    Where Xor
    """.split()  # noqa: SIM905  (reads as prose)
)


def inline_control_flow(model: onnx.ModelProto, *, opset: int | None = None) -> onnx.ModelProto:
    """The model without the bodies that dataflow can express; the same object where there is none.

    Args:
        model: of opset 13 or newer.
        opset: that it was made for, where it was converted since: an old Scan has other shapes.
    """
    operators = {operator for _, operator in _RULES}
    if not any(node.op_type in operators for node in model.graph.node):
        return model
    graph = Graph(model, _RULES, opset)
    nodes = graph.expanded(model.graph.node)
    if not graph.changed:
        return model
    result = onnx.ModelProto()
    result.CopyFrom(model)
    del result.graph.node[:]
    result.graph.node.extend(nodes)
    result.graph.value_info.extend(graph.claims)
    return result


def _if(graph: Graph, node: onnx.NodeProto) -> list[onnx.NodeProto] | None:
    condition = graph.value_of(node.input[0])
    if condition is None:
        return _both_branches(graph, node)
    branch = attribute_of(node, "then_branch" if bool(condition) else "else_branch")
    held, names = graph.held(branch)
    nodes, results = graph.body(branch, names)
    return [*held, *nodes, *named(results, node.output)]


def _both_branches(graph: Graph, node: onnx.NodeProto) -> list[onnx.NodeProto] | None:
    """The results of both branches and a choice between them, where both are cheap and cannot fail."""
    branches = [attribute_of(node, name) for name in ("then_branch", "else_branch")]
    if not all(inner.op_type in _TOTAL and inner.domain in STANDARD for b in branches for inner in b.node):
        return None
    if not all(_same_tensor(a.type, b.type) for a, b in zip(*(b.output for b in branches), strict=True)):
        return None
    none, no_dimensions = graph.constant([], np.int64)
    condition = graph.fresh("condition")
    nodes = [none, helper.make_node("Reshape", [node.input[0], no_dimensions], [condition])]
    choices: list[list[str]] = []
    for branch in branches:
        held, names = graph.held(branch)
        inner, results = graph.body(branch, names)
        nodes += [*held, *inner]
        choices.append(results)
        for value, name in zip(branch.output, results, strict=True):
            graph.claim(name, value.type)
    for yes, no, output in zip(*choices, node.output, strict=True):
        if output:
            nodes.append(helper.make_node("Where", [condition, yes, no], [output]))
    return nodes


def _same_tensor(first: onnx.TypeProto, second: onnx.TypeProto) -> bool:
    """Whether both are tensors of one type and size, so that one may be chosen element by element."""
    shape = sizes(first)
    known = shape is not None and None not in shape and shape == sizes(second)
    return known and first.tensor_type.elem_type == second.tensor_type.elem_type


def _loop(graph: Graph, node: onnx.NodeProto) -> list[onnx.NodeProto] | None:
    body: onnx.GraphProto = attribute_of(node, "body")
    trips = graph.value_of(node.input[0]) if node.input and node.input[0] else None
    condition = graph.value_of(node.input[1]) if len(node.input) > 1 and node.input[1] else np.True_
    if trips is None or condition is None or not bool(condition) or not _goes_on(body):
        return None
    if not graph.fits(body, int(trips)):
        return None
    states = list(node.input[2:])
    stacks: list[list[str]] = [[] for _ in body.output[1 + len(states) :]]
    nodes, held = graph.held(body)
    inputs = [value.name for value in body.input]
    for trip in range(int(trips)):
        made, number = graph.constant(trip, np.int64)
        going, goes_on = graph.constant(True, np.bool_)
        given = dict(zip(inputs, [number, goes_on, *states], strict=True))
        inner, results = graph.body(body, held | given)
        nodes += [made, going, *inner]
        states = results[1 : 1 + len(states)]
        for stack, result in zip(stacks, results[1 + len(states) :], strict=True):
            stack.append(result)
    nodes += named(states, node.output[: len(states)])
    for stack, output in zip(stacks, node.output[len(states) :], strict=False):
        nodes += _stacked(graph, stack, output, 0)
    return nodes


def _goes_on(body: onnx.GraphProto) -> bool:
    """Whether a loop's condition is certainly true after each step."""
    makers = {name: node for node in body.node for name in node.output}
    name = body.output[0].name
    while (maker := makers.get(name)) is not None and maker.op_type == "Identity":
        name = maker.input[0]
    if maker is None:
        values = {t.name: t for t in body.initializer}
        return name == body.input[1].name or (name in values and bool(numpy_helper.to_array(values[name])))
    value = attribute_of(maker, "value")
    return maker.op_type == "Constant" and value is not None and bool(numpy_helper.to_array(value))


def _scan(graph: Graph, node: onnx.NodeProto) -> list[onnx.NodeProto] | None:
    body: onnx.GraphProto = attribute_of(node, "body")
    count = int(attribute_of(node, "num_scan_inputs", 0))
    states, sources = list(node.input[: len(node.input) - count]), list(node.input[len(node.input) - count :])
    stacked = len(body.output) - len(states)
    axes = list(attribute_of(node, "scan_input_axes", [0] * count))
    backwards = list(attribute_of(node, "scan_input_directions", [0] * count))
    shapes = [sizes(graph.types.get(source)) for source in sources]
    if graph.opset is not None and graph.opset < _SCAN_OPSET:
        return None
    if not sources or any(shape is None for shape in shapes):
        return None
    lengths = {shape[axis] for shape, axis in zip(shapes, axes, strict=True) if shape is not None}
    trips = lengths.pop()
    if lengths or trips is None or not graph.fits(body, trips):
        return None
    nodes, held = graph.held(body)
    inputs = [value.name for value in body.input]
    stacks: list[list[str]] = [[] for _ in range(stacked)]
    for trip in range(trips):
        parts: list[str] = []
        for source, axis, back in zip(sources, axes, backwards, strict=True):
            made, number = graph.constant(trips - 1 - trip if back else trip, np.int64)
            parts.append(graph.fresh(source))
            nodes += [made, helper.make_node("Gather", [source, number], [parts[-1]], axis=axis)]
        inner, results = graph.body(body, held | dict(zip(inputs, [*states, *parts], strict=True)))
        nodes += inner
        states = results[: len(states)]
        for stack, result in zip(stacks, results[len(states) :], strict=True):
            stack.append(result)
    nodes += named(states, node.output[: len(states)])
    axes = list(attribute_of(node, "scan_output_axes", [0] * stacked))
    backwards = list(attribute_of(node, "scan_output_directions", [0] * stacked))
    for stack, output, axis, back in zip(stacks, node.output[len(states) :], axes, backwards, strict=False):
        nodes += _stacked(graph, stack[::-1] if back else stack, output, axis)
    return nodes


def _stacked(graph: Graph, values: Sequence[str], output: str, axis: int) -> list[onnx.NodeProto]:
    """Values side by side along a new axis."""
    if not output:
        return []
    made, place = graph.constant([axis], np.int64)
    wide = [graph.fresh(value) for value in values]
    nodes = [helper.make_node("Unsqueeze", [v, place], [w]) for v, w in zip(values, wide, strict=True)]
    return [made, *nodes, helper.make_node("Concat", wide, [output], axis=axis)]


_RULES: Rules = {
    ("", "If"): _if,
    ("", "Loop"): _loop,
    ("", "Scan"): _scan,
    ("ai.onnx.preview", "FlexAttention"): flex_attention,
}
