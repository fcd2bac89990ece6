"""The operations of a step of an ONNX file, from its shapes alone: its weights are not read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from daceml.errors import OnnxShapesError
from daceml.operations.database.records import Operand
from daceml.operations.onnx_graph import OnnxGraph, OnnxNode, read_graph
from daceml.operations.work.onnx_work import FREE, onnx_work
from daceml.prediction.capture.optimizers import capture_optimizer
from daceml.prediction.model_step import ModelStep, Precision, StepOperation, StepParameter
from daceml.prediction.model_steps.onnx_memory import step_memory

if TYPE_CHECKING:
    pass

_HALF: dict[str, str] = {"bf16": "bfloat16", "fp16": "float16"}
_FLOATS = ("float16", "bfloat16", "float32", "float64")
_BACKWARD = "an ONNX file has no backward pass: each node's is taken to be twice its work"


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
        OnnxShapesError: no ONNX file, or one whose shapes are not known.
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
    if not isinstance(optimizer, str):
        raise OnnxShapesError(
            "the optimizer of an ONNX file is given by name",
            why="there is no module whose parameters it could take",
            fix="name one of torch.optim, or None",
        )
    return capture_optimizer({name: (one.shape, one.dtype) for name, (one, _) in trained.items()}, optimizer)
