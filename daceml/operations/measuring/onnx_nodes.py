"""The nodes of an ONNX file, measured one by one: each as a model of its own, which ONNX Runtime runs.

A node is what users of the file run, so it is measured by what runs it, and recorded by the name that ONNX
gives it ("Gemm"). Weights stay constants, which a runtime may pack before it begins.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from daceml.errors import MeasurementError
from daceml.garbage_collection import without_collection
from daceml.operations.database.records import Entry, Environment, Operation
from daceml.operations.measuring.batches import Timed
from daceml.operations.measuring.machine import environment
from daceml.operations.measuring.one_operation import Settings, stopwatch_of
from daceml.operations.measuring.slopes import slopes
from daceml.operations.measuring.stopwatches import nothing
from daceml.operations.onnx_graph import decides, graph_of, inferred
from daceml.operations.work.onnx_work import FREE

if TYPE_CHECKING:
    import onnx

_IR_VERSION = 10  # that every supported ONNX Runtime reads
_MOST = 4096  # copies in a chain


@dataclass(frozen=True, kw_only=True)
class NodeJob:
    """One node to be measured.

    Attributes:
        model: of the node alone, serialised; constants that decide what it computes are in it.
        weights: names of its inputs that are constants with any values.
    """

    operation: Operation
    model: bytes
    weights: tuple[str, ...]

    @property
    def title(self) -> str:
        return self.operation.operator


@dataclass(frozen=True, kw_only=True)
class NodeOccurrence:
    """A node and how often a call of the file runs one like it."""

    job: NodeJob
    forward: int


def node_jobs(path: Path, sizes: Mapping[str, int] | None = None) -> tuple[NodeOccurrence, ...]:
    """The different nodes of a file that compute or move something, in the order of first ones.

    Args:
        sizes: of its named dimensions.
    Raises:
        OnnxShapesError: no ONNX file, or one whose shapes are not known.
    """
    model = inferred(path, sizes)
    graph = graph_of(model, path)
    weights = {one.name: one for one in model.graph.initializer}
    constants = {
        node.output[0]: attribute.t
        for node in model.graph.node
        if node.op_type == "Constant"
        for attribute in node.attribute
        if attribute.name == "value"
    }
    found: dict[str, NodeJob] = {}
    counts: Counter[str] = Counter()
    for node, proto in zip(graph.nodes, model.graph.node, strict=True):
        if node.operation.operator in FREE or node.is_size_arithmetic:
            continue
        key = repr(node.operation)
        counts[key] += 1
        if key not in found:
            found[key] = _job(node.operation, proto, model, weights | constants)
    return tuple(NodeOccurrence(job=job, forward=counts[key]) for key, job in found.items())


def _job(
    operation: Operation,
    proto: onnx.NodeProto,
    model: onnx.ModelProto,
    constants: Mapping[str, onnx.TensorProto],
) -> NodeJob:
    from onnx import helper

    known = {
        value.name: value.type.tensor_type
        for value in (*model.graph.input, *model.graph.value_info, *model.graph.output)
    }
    reads = list(dict.fromkeys(name for name in proto.input if name))
    values: dict[str, Any] = {}
    kept: list[onnx.TensorProto] = []
    weights: list[str] = []
    for name in reads:
        tensor = constants.get(name)
        if tensor is None:
            values[name] = helper.make_tensor_value_info(name, known[name].elem_type, _shape(known[name]))
            continue
        if decides(tensor):
            kept.append(tensor)
            continue
        weights.append(name)
        values[name] = helper.make_tensor_value_info(name, tensor.data_type, list(tensor.dims))
    writes = [
        helper.make_tensor_value_info(name, known[name].elem_type, _shape(known[name]))
        for name in proto.output
        if name
    ]
    graph = helper.make_graph([proto], proto.op_type, list(values.values()), writes, initializer=kept)
    alone = helper.make_model(graph, opset_imports=list(model.opset_import), ir_version=_IR_VERSION)
    return NodeJob(operation=operation, model=alone.SerializeToString(), weights=tuple(weights))


def _shape(tensor: Any) -> list[int]:
    return [dim.dim_value for dim in tensor.shape.dim]


def node_environment() -> Environment:
    """Of this process, in which ONNX Runtime runs nodes."""
    here = environment("cpu")
    return replace(here, software={**here.software, "onnxruntime": version("onnxruntime")})


def measured_node(job: NodeJob, settings: Settings) -> Entry:
    """Measure one node in this process; what a campaign's workers run.

    Raises:
        MeasurementError: ONNX Runtime has no such kernel, or noise hides its time.
    """
    with without_collection():
        found = slopes(_timed(job, settings), rounds=settings.rounds, most=_MOST)
    return Entry(
        operation=job.operation,
        environment=node_environment(),
        duration=found.duration(settings.mode),
        provenance="measured",
        source="daceml measure",
        licence="NOASSERTION",  # of SPDX: who measured has not said
        date=datetime.now(UTC).date().isoformat(),
    )


def _timed(job: NodeJob, settings: Settings) -> Timed:
    import onnx

    if settings.mode != "eager" or settings.device != "cpu":
        raise MeasurementError(
            f"nodes of an ONNX file cannot be measured {settings.mode} on {settings.device}",
            why="ONNX Runtime runs them on the processor, as calls come",
            fix='take the mode "eager" and the device "cpu", or measure the module that was exported',
        )
    model = onnx.ModelProto.FromString(job.model)
    drawn = _drawn(model, settings.seed)
    constants = [onnx.numpy_helper.from_array(drawn.pop(name), name) for name in job.weights]
    model.graph.initializer.extend(constants)
    for value in [one for one in model.graph.input if one.name in job.weights]:
        model.graph.input.remove(value)
    try:
        session, binding = _bound(model, drawn)
        session.run_with_iobinding(binding)
    except Exception as error:  # ONNX Runtime's own errors have no common class but Exception
        raise MeasurementError(
            f"ONNX Runtime cannot run {job.title}",
            why=f"{type(error).__name__}: {str(error).strip().splitlines()[0]}",
            fix="measure the module that was exported",
        ) from error
    stopwatch = stopwatch_of(settings)
    prepared: dict[int, Any] = {}

    def timed(copies: int) -> float:
        def work() -> None:
            for _ in range(copies):
                session.run_with_iobinding(binding)

        if copies not in prepared:
            prepared[copies] = stopwatch.prepared(work, nothing)
        return prepared[copies]()

    return timed


def _drawn(model: onnx.ModelProto, seed: int) -> dict[str, Any]:
    """Random values of every input: of numbers from the normal distribution, of whole ones 0 and 1."""
    import numpy as np
    from onnx import helper

    random = np.random.default_rng(seed)
    found: dict[str, Any] = {}
    for value in model.graph.input:
        tensor = value.type.tensor_type
        kind, shape = helper.tensor_dtype_to_np_dtype(tensor.elem_type), _shape(tensor)
        floating = np.issubdtype(kind, np.floating) or kind.kind == "V"
        drawn = random.standard_normal(shape, np.float32) if floating else random.integers(0, 2, shape)
        found[value.name] = np.asarray(drawn).astype(kind)
    return found


def _bound(model: onnx.ModelProto, arrays: Mapping[str, Any]) -> tuple[Any, Any]:
    """A session with its inputs in place; results are allocated by each run, as calls do."""
    import onnxruntime
    import torch

    options: Any = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    # what joins nodes, or changes the layout between them, has one node only
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    session: Any = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    binding = session.io_binding()
    for name, array in arrays.items():
        binding.bind_cpu_input(name, array)
    for value in model.graph.output:
        binding.bind_output(value.name)
    return session, binding
