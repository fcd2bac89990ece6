"""The operations of a step of an ONNX file, from its shapes alone: its weights are not read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from daceml.errors import OnnxStepError
from daceml.prediction.onnx_memory import step_memory
from daceml.prediction.step import ModelStep, Precision, StepOperation, StepParameter
from daceml.profiling.database.records import Attribute, Operand, Operation
from daceml.profiling.estimation.onnx_work import FREE, onnx_work

if TYPE_CHECKING:
    import onnx

_HALF: dict[str, str] = {"bf16": "bfloat16", "fp16": "float16"}
_FLOATS = ("float16", "bfloat16", "float32", "float64")
_CONTROL = ("If", "Loop", "Scan", "SequenceMap")
_BACKWARD = "an ONNX file has no backward pass: each node's is taken to be twice its work"
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


def read_onnx_step(
    path: Path,
    sizes: Mapping[str, int] | None = None,
    *,
    train: bool = False,
    optimizer: Any = "adam",
    precision: Precision = "fp32",
) -> ModelStep:
    """A call of an ONNX file, or a training step of its weights.

    Args:
        sizes: of the named dimensions of its inputs.
        train: with a backward pass of twice the work of each node, and an optimizer of torch by name.
        precision: bf16 and fp16 stand in for every float32 of the file.
    Raises:
        OnnxStepError: no ONNX file, or one whose shapes are not known.
        CaptureError: there is no such optimizer.
    """
    graph = read_graph(path, sizes)
    if precision in _HALF:
        graph = _in_half(graph, _HALF[precision])
    forward = [_forward(node) for node in graph.nodes]
    trained = _trained(graph) if train else {}
    operations = list(forward)
    notes: list[str] = []
    optimizer_bytes = 0
    if train:
        notes.append(_BACKWARD)
        operations += _backward(graph, forward, trained)
        if optimizer is not None and trained:
            steps, optimizer_bytes = _optimizer(trained, optimizer)
            operations += steps
    first = next(iter(graph.inputs.values()), None)
    return ModelStep(
        name=graph.name,
        operations=tuple(operations),
        parameters=tuple(
            StepParameter(name=name, layer=layer, size_bytes=one.size_bytes, element=one.dtype)
            for name, (one, layer) in trained.items()
        ),
        memory=step_memory(
            graph.inputs | graph.weights,
            [(node.reads, dict(zip(node.writes, node.results, strict=True))) for node in graph.nodes],
            views={
                name: node.reads[0]
                for node in graph.nodes
                if node.operation.operator in FREE and node.reads
                for name in node.writes
            },
            weights=graph.weights,
            trained={name: one for name, (one, _) in trained.items()},
            optimizer_bytes=optimizer_bytes,
        ),
        samples=first.shape[0] if first is not None and first.shape else None,
        notes=tuple(notes),
    )


def read_graph(path: Path, sizes: Mapping[str, int] | None = None) -> OnnxGraph:
    """Nodes with the shapes of all that they read and write.

    Raises:
        OnnxStepError: no ONNX file, a dimension without a size, control flow, or shapes from data.
    """
    import onnx
    from onnx import inliner, shape_inference

    try:
        model = onnx.load(str(path), load_external_data=False)
        _fix_sizes(model, dict(sizes or {}), path)
        model = inliner.inline_local_functions(model)
        model = shape_inference.infer_shapes(model, data_prop=True)
    except OSError as error:
        raise OnnxStepError(f"{path} cannot be read", why=str(error), fix="check the path") from error
    except (ValueError, RuntimeError, onnx.checker.ValidationError) as error:
        raise _no_file(path, error) from error
    except Exception as error:  # protobuf has errors of its own, in a module that moves
        if type(error).__name__ != "DecodeError":
            raise
        raise _no_file(path, error) from error
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
        OnnxStepError: no ONNX file, or no input has a named first size.
    """
    import onnx

    try:
        model = onnx.load(str(path), load_external_data=False)
    except OSError as error:
        raise OnnxStepError(f"{path} cannot be read", why=str(error), fix="check the path") from error
    data = {one.name for one in model.graph.initializer}
    for value in model.graph.input:
        dims = value.type.tensor_type.shape.dim
        if value.name not in data and len(dims) and dims[0].dim_param:
            return dims[0].dim_param
    raise OnnxStepError(
        f"{path} takes no other batch",
        why="the first size of none of its inputs has a name",
        fix="leave --batch out, or export the model with a named batch",
    )


def _no_file(path: Path, error: Exception) -> OnnxStepError:
    reason = str(error).strip().splitlines()[:1]
    return OnnxStepError(
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
        raise OnnxStepError(
            f"input {unnamed[0]!r} of {path} has a dimension of any size",
            why="it has neither a size nor a name by which one could be given",
            fix="export the model with sizes, or with names of dimensions",
        )
    missing, unknown = sorted(named - set(sizes)), sorted(set(sizes) - named)
    if missing:
        raise OnnxStepError(
            f"{path} has dimensions of any size: {', '.join(missing)}",
            why="its operations follow from them",
            fix=f"give each a size, such as {missing[0]}=8",
        )
    if unknown:
        raise OnnxStepError(
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
        raise OnnxStepError(
            f"{path} has control flow: {node.op_type}",
            where=f"node {node.name or node.op_type}",
            why="how often its branches run follows from data",
            fix="export the model without it",
        )
    reads, writes = tuple(filter(None, node.input)), tuple(filter(None, node.output))
    for name in (*reads, *writes):
        if name not in known:
            raise OnnxStepError(
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


def _in_half(graph: OnnxGraph, dtype: str) -> OnnxGraph:
    def half(one: Operand) -> Operand:
        return replace(one, dtype=dtype) if one.dtype == "float32" else one

    def halves(some: Iterable[Operand]) -> tuple[Operand, ...]:
        return tuple(map(half, some))

    nodes = tuple(
        replace(
            node,
            operation=replace(node.operation, operands=halves(node.operation.operands)),
            results=halves(node.results),
        )
        for node in graph.nodes
    )
    return replace(
        graph,
        nodes=nodes,
        inputs={name: half(one) for name, one in graph.inputs.items()},
        weights={name: half(one) for name, one in graph.weights.items()},
    )


def _forward(node: OnnxNode) -> StepOperation:
    work = onnx_work(node.operation, node.results)
    if work is not None and node.is_size_arithmetic:
        work = replace(work, flops=0.0, bytes_moved=0.0)
    return StepOperation(operation=node.operation, results=node.results, work=work, layer=node.layer)


def _trained(graph: OnnxGraph) -> dict[str, tuple[Operand, str]]:
    """Weights of floating types that some node reads -> the layer of the first that does."""
    found: dict[str, tuple[Operand, str]] = {}
    for node in graph.nodes:
        for name in node.reads:
            one = graph.weights.get(name)
            if one is not None and one.dtype in _FLOATS and one.shape:
                found.setdefault(name, (one, node.layer))
    return found


def _backward(
    graph: OnnxGraph, forward: Sequence[StepOperation], trained: Mapping[str, Any]
) -> Iterator[StepOperation]:
    first = {name: place for place, node in reversed(list(enumerate(graph.nodes))) for name in node.reads}
    for place in reversed(range(len(forward))):
        one, node = forward[place], graph.nodes[place]
        gradients = tuple(operand for operand in one.operation.operands if operand.dtype in _FLOATS)
        if not gradients or not any(result.dtype in _FLOATS for result in one.results):
            continue
        work = one.work
        if work is not None:
            work = replace(work, flops=2 * work.flops, bytes_moved=2 * work.bytes_moved)
        yield StepOperation(
            operation=replace(one.operation, direction="backward"),
            results=gradients,
            work=work,
            phase="backward",
            layer=one.layer,
            ready=tuple(
                name for name in dict.fromkeys(node.reads) if name in trained and first[name] == place
            ),
        )


def _optimizer(
    trained: Mapping[str, tuple[Operand, str]], optimizer: Any
) -> tuple[tuple[StepOperation, ...], int]:
    from daceml.prediction.capture.optimizers import capture_optimizer

    if not isinstance(optimizer, str):
        raise OnnxStepError(
            "the optimizer of an ONNX file is given by name",
            why="there is no module whose parameters it could take",
            fix="name one of torch.optim, or None",
        )
    return capture_optimizer({name: (one.shape, one.dtype) for name, (one, _) in trained.items()}, optimizer)
