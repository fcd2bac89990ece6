"""Operators of old opsets that mean something else today; ONNX's version converter leaves them as they are.

PRelu before opset 7 has a slope for each channel; numpy's broadcasting takes it for the last dimension.
Hardmax before opset 13 finds one maximum over all dimensions from its axis on.
Upsample, and Resize before opset 11, place output o at o / scale.
"""

from __future__ import annotations

from collections.abc import Iterator

import onnx
from onnx import helper, numpy_helper

from daceml.errors import UnknownOperatorError

# Since then, slopes are broadcast as in numpy
_BROADCAST = 7
# Since then, Hardmax works along one axis
_ONE_AXIS = 13
# Since then, Resize has attributes that say where its outputs lie
_COORDINATES = 11


def align_slopes(model: onnx.ModelProto, opset: int) -> None:
    """Give slopes for each channel the dimensions that follow the channel. Mutates the model.

    Raises:
        UnknownOperatorError: the rank of an operand is not declared.
    """
    graph = model.graph
    if opset >= _BROADCAST or not any(node.op_type == "PRelu" for node in graph.node):
        return
    ranks = _declared_ranks(graph)
    sizes = {tensor.name: tuple(tensor.dims) for tensor in graph.initializer}
    taken = {name for node in graph.node for name in (*node.input, *node.output)} | set(ranks) | set(sizes)
    for node in list(graph.node):
        if node.op_type != "PRelu" or node.domain not in ("", "ai.onnx") or len(node.input) != 2:
            continue
        x, slope = node.input
        if x not in ranks:
            raise UnknownOperatorError(
                f"PRelu {node.name or node.output[0]!r} cannot be read as opset {opset} means it",
                where=f"graph {graph.name or '(unnamed)'}",
                why=f"its slope has a value for each channel, and the rank of {x!r} is not known",
                fix="declare the shape of the input, or export the model again with a newer opset",
            )
        if ranks[x] <= 2 or sizes.get(slope, ()) == (1,):
            continue
        aligned = f"{slope}_channels"
        while aligned in taken:
            aligned += "_"
        taken.add(aligned)
        axes = list(range(1, ranks[x] - 1))
        made = helper.make_node("Unsqueeze", [slope], [aligned], axes=axes)
        graph.node.insert(list(graph.node).index(node), made)
        node.input[1] = aligned


def align_hardmax(model: onnx.ModelProto, opset: int) -> None:
    """Name the axis of Hardmax where it is the last one: both meanings are one then. Mutates the model.

    Raises:
        UnknownOperatorError: it is another one, or the rank of the operand is not declared.
    """
    if opset >= _ONE_AXIS:
        return
    ranks = _declared_ranks(model.graph)
    for node in model.graph.node:
        if node.op_type != "Hardmax" or node.domain not in ("", "ai.onnx"):
            continue
        axis = next((a.i for a in node.attribute if a.name == "axis"), 1)
        rank = ranks.get(node.input[0] if node.input else "")
        if axis != -1 and (rank is None or axis != rank - 1):
            raise UnknownOperatorError(
                f"Hardmax {node.name or node.output[0]!r} cannot be read as opset {opset} means it",
                where=f"graph {model.graph.name or '(unnamed)'}",
                why=f"it finds one maximum over all dimensions from axis {axis} on",
                fix="export the model again with a newer opset, or declare the shape of its input",
            )
        del node.attribute[:]
        node.attribute.append(helper.make_attribute("axis", -1))


def place_outputs(model: onnx.ModelProto, opset: int) -> None:
    """Say where the outputs of each Resize lie. Mutates the model, which is converted already.

    The nearest element is the one before that place, or the one after it where a dimension shrinks, as ONNX
    Runtime has it; ONNX says nothing about it.

    Raises:
        UnknownOperatorError: some dimensions of a nearest Resize shrink and others grow, or it is not known
            whether they do.
    """
    if opset >= _COORDINATES:
        return
    data = {tensor.name: tensor for tensor in model.graph.initializer}
    for node in _nodes(model.graph):
        if node.op_type == "Constant" and node.attribute and node.attribute[0].HasField("t"):
            data[node.output[0]] = node.attribute[0].t
        if node.op_type != "Resize" or node.domain not in ("", "ai.onnx"):
            continue
        told = {"coordinate_transformation_mode": "asymmetric"}
        if all(attribute.s != b"linear" for attribute in node.attribute if attribute.name == "mode"):
            scales = data.get(node.input[2]) if len(node.input) > 2 else None
            factors = None if scales is None else numpy_helper.to_array(scales)
            grows = opset < _COORDINATES - 1 or (factors is not None and bool((factors >= 1).all()))
            if not grows and (factors is None or bool((factors > 1).any())):
                raise UnknownOperatorError(
                    f"Resize {node.name or node.output[0]!r} cannot be read as opset {opset} means it",
                    where=f"graph {model.graph.name or '(unnamed)'}",
                    why="which element is the nearest one depends on whether a dimension shrinks, and "
                    + (
                        "its scales are no constant"
                        if factors is None
                        else f"its scales are {factors.tolist()}"
                    ),
                    fix="export the model again with a newer opset",
                )
            told["nearest_mode"] = "floor" if grows else "ceil"
        kept = [attribute for attribute in node.attribute if attribute.name not in told]
        del node.attribute[:]
        node.attribute.extend([*kept, *(helper.make_attribute(name, told[name]) for name in told)])


def _nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    """Those of a graph and of the graphs in it, in order."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            for inside in (*attribute.graphs, *([attribute.g] if attribute.HasField("g") else [])):
                yield from _nodes(inside)


def _declared_ranks(graph: onnx.GraphProto) -> dict[str, int]:
    """What ONNX would infer takes a process of its own."""
    return {
        value.name: len(value.type.tensor_type.shape.dim)
        for value in (*graph.input, *graph.value_info)
        if value.type.tensor_type.HasField("shape")
    }
