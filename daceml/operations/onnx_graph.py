"""The nodes of an ONNX file with the shapes of all that they read and write, known before anything runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from daceml.errors import OnnxShapesError
from daceml.operations.database.records import Attribute, Operand, Operation

if TYPE_CHECKING:
    import onnx

_CONTROL = ("If", "Loop", "Scan", "SequenceMap")
_FLOATS = ("float16", "bfloat16", "float32", "float64")
_SHAPES = 64  # elements of whole numbers, up to which they are sizes, which hosts compute


@dataclass(frozen=True, kw_only=True)
class OnnxNode:
    """A node whose shapes are known.

    Attributes:
        reads, writes: names of its inputs and outputs, those that are there.
    """

    name: str
    operation: Operation
    results: tuple[Operand, ...]
    reads: tuple[str, ...]
    writes: tuple[str, ...]

    @property
    def layer(self) -> str:
        """What exporters write into a node's name: "/encoder/layer.0/MatMul" is of "encoder.layer.0"."""
        return ".".join(part for part in self.name.split("/")[:-1] if part)

    @property
    def is_size_arithmetic(self) -> bool:
        """Whether it computes sizes of other tensors, which no device does."""
        return all(not one.dtype.startswith(("float", "bfloat")) for one in self.results) and (
            sum(one.elements for one in self.results) <= _SHAPES
        )


@dataclass(frozen=True, kw_only=True)
class OnnxGraph:
    """A file's nodes in their order.

    Attributes:
        inputs: name -> operand, without initializers.
        weights: name -> operand of each initializer.
    """

    name: str
    nodes: tuple[OnnxNode, ...]
    inputs: dict[str, Operand]
    weights: dict[str, Operand]


def read_graph(path: Path, sizes: Mapping[str, int] | None = None) -> OnnxGraph:
    """Nodes with the shapes of all that they read and write.

    Raises:
        OnnxShapesError: no ONNX file, a dimension without a size, control flow, or shapes from data.
    """
    return graph_of(inferred(path, sizes), path)


def inferred(path: Path, sizes: Mapping[str, int] | None = None) -> onnx.ModelProto:
    """The model with the shapes that follow from sizes, and its functions inline; data in other files stays.

    Raises:
        OnnxShapesError: no ONNX file, or a dimension without a size.
    """
    import onnx
    from onnx import inliner, shape_inference

    model = _loaded(path)
    _fix_sizes(model, dict(sizes or {}), path)
    try:
        return shape_inference.infer_shapes(inliner.inline_local_functions(model), data_prop=True)
    except (ValueError, RuntimeError, onnx.checker.ValidationError) as error:
        raise _no_onnx(path, error) from error


def graph_of(model: onnx.ModelProto, path: Path) -> OnnxGraph:
    """The nodes of a model whose shapes were inferred.

    Raises:
        OnnxShapesError: control flow, or a shape that is not known.
    """
    graph = model.graph
    weights = {
        one.name: Operand(shape=tuple(one.dims), dtype=_dtype(one.data_type)) for one in graph.initializer
    }
    known = weights | {
        value.name: operand
        for value in (*graph.input, *graph.value_info, *graph.output)
        if (operand := _operand(value)) is not None and value.name not in weights
    }
    nodes = tuple(_node(node, known, path) for node in graph.node)
    inputs = {value.name: known[value.name] for value in graph.input if value.name not in weights}
    return OnnxGraph(name=path.stem, nodes=nodes, inputs=inputs, weights=weights)


def named_batch(path: Path) -> str:
    """The name of the first size of a file's first input that has one there.

    Raises:
        OnnxShapesError: no ONNX file, or no input has a named first size.
    """
    model = _loaded(path)
    data = {one.name for one in model.graph.initializer}
    for value in model.graph.input:
        dims = value.type.tensor_type.shape.dim
        if value.name not in data and len(dims) and dims[0].dim_param:
            return dims[0].dim_param
    raise OnnxShapesError(
        f"{path} takes no other batch",
        why="the first size of none of its inputs has a name",
        fix="leave --batch out, or export the model with a named batch",
    )


def _loaded(path: Path) -> onnx.ModelProto:
    import onnx
    from onnx import external_data_helper

    try:
        model = onnx.load(str(path), load_external_data=False)
    except OSError as error:
        raise OnnxShapesError(f"{path} cannot be read", why=str(error), fix="check the path") from error
    except Exception as error:  # protobuf has errors of its own, in a module that moves
        if type(error).__name__ != "DecodeError":
            raise
        raise _no_onnx(path, error) from error
    for tensor in model.graph.initializer:
        if external_data_helper.uses_external_data(tensor) and decides(tensor):
            # a file without its data has shapes all the same, but for those that follow from it
            with suppress(OSError, ValueError, onnx.checker.ValidationError):
                external_data_helper.load_external_data_for_tensor(tensor, str(path.parent))
                tensor.ClearField("data_location")
                del tensor.external_data[:]
    return model


def decides(tensor: onnx.TensorProto) -> bool:
    """Whether values of a constant may decide what a node computes, such as sizes, indices and limits."""
    return _dtype(tensor.data_type) not in _FLOATS or prod(tensor.dims) <= _SHAPES


def _no_onnx(path: Path, error: Exception) -> OnnxShapesError:
    reason = str(error).strip().splitlines()[:1]
    return OnnxShapesError(
        f"{path} is no ONNX file that can be understood",
        why=f"{type(error).__name__}: {reason[0]}" if reason else type(error).__name__,
        fix="export the model again, and check it with onnx.checker",
    )


def _fix_sizes(model: onnx.ModelProto, sizes: dict[str, int], path: Path) -> None:
    data = {one.name for one in model.graph.initializer}
    named: set[str] = set()
    unnamed: list[str] = []
    for value in model.graph.input:
        if value.name in data:
            continue
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param:
                named.add(dim.dim_param)
            elif not dim.HasField("dim_value"):
                unnamed.append(value.name)
    if unnamed:
        raise OnnxShapesError(
            f"input {unnamed[0]!r} of {path} has a dimension of any size",
            why="it has neither a size nor a name by which one could be given",
            fix="export the model with sizes, or with names of dimensions",
        )
    missing, unknown = sorted(named - set(sizes)), sorted(set(sizes) - named)
    if missing:
        raise OnnxShapesError(
            f"{path} has dimensions of any size: {', '.join(missing)}",
            why="its operations follow from them"
            + (f"; {', '.join(unknown)} is none of its names" if unknown else ""),
            fix=f"give each a size, on the command line --dim {missing[0]}=8",
        )
    if unknown:
        raise OnnxShapesError(
            f"{path} has no dimension named {', '.join(unknown)}",
            why=f"its inputs have {', '.join(sorted(named)) or 'no named dimensions'}",
            fix="correct the name",
        )
    # inferred shapes of the file are in these names, too
    for value in (*model.graph.input, *model.graph.output, *model.graph.value_info):
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param in sizes:
                dim.dim_value = sizes[dim.dim_param]


def _operand(value: onnx.ValueInfoProto) -> Operand | None:
    tensor = value.type.tensor_type
    dims = tensor.shape.dim
    if not tensor.elem_type or not tensor.HasField("shape") or not all(d.HasField("dim_value") for d in dims):
        return None
    return Operand(shape=tuple(dim.dim_value for dim in dims), dtype=_dtype(tensor.elem_type))


def _dtype(number: int) -> str:
    import onnx

    name = onnx.TensorProto.DataType.Name(cast("Any", number)).lower()
    return {"float": "float32", "double": "float64"}.get(name, name)


def _node(node: onnx.NodeProto, known: Mapping[str, Operand], path: Path) -> OnnxNode:
    if node.op_type in _CONTROL:
        raise OnnxShapesError(
            f"{path} has control flow: {node.op_type}",
            where=f"node {node.name or node.op_type}",
            why="how often its branches run follows from data",
            fix="export the model without it",
        )
    reads, writes = tuple(filter(None, node.input)), tuple(filter(None, node.output))
    for name in (*reads, *writes):
        if name not in known:
            raise OnnxShapesError(
                f"the shape of {name!r} is not known",
                where=f"{path}, node {node.name or '?'} ({node.op_type})",
                why="it follows from data, or ONNX has no shape inference for what computes it",
                fix="export the model with sizes, or simplify it",
            )
    attributes = {one.name: told for one in node.attribute if (told := _attribute(one)) is not None}
    operation = Operation(
        operator=node.op_type, operands=tuple(known[name] for name in reads), attributes=attributes
    )
    return OnnxNode(
        name=node.name,
        operation=operation,
        results=tuple(known[name] for name in writes),
        reads=reads,
        writes=writes,
    )


def _attribute(attribute: onnx.AttributeProto) -> Attribute | None:
    import onnx

    value = onnx.helper.get_attribute_value(attribute)
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Sequence) and all(isinstance(one, int | float) for one in value):
        return cast("Attribute", tuple(value))
    return None  # tensors and graphs: constants and control flow
