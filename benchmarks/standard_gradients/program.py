"""A case of the standard in float64, compiled with the gradients of all its numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnx.shape_inference
import torch
from onnx import numpy_helper

from benchmarks.conformance.cases import Case
from daceml.runtime.program import Program

if TYPE_CHECKING:
    from daceml.frontend.onnx_import.onnx_process import OnnxProcess
    from daceml.sdfg.network import Network

_FLOAT, _DOUBLE = onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE


def widened(case: Case) -> Case:
    """The same with float64 wherever the model has float32 and its operators take it; attributes stay."""
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    graph, short = model.graph, _short(case.model)
    del graph.value_info[:]
    names = [value.name for value in graph.input]
    for value in graph.input:
        if value.type.tensor_type.elem_type == _FLOAT and value.name not in short:
            value.type.tensor_type.elem_type = _DOUBLE
    for tensor in _tensors(graph):
        if tensor.data_type == _FLOAT and tensor.name not in short:
            tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype(float), tensor.name))
    _infer_results(model)
    inputs, expected = case.data[0]
    wide = [x if name in short else _wide(x) for name, x in zip(names, inputs, strict=False)]
    return replace(case, model=model, data=[(wide, expected)])


def _short(model: onnx.ModelProto) -> set[str]:
    """Operands that some operator does not take in float64, or that say what it does."""
    versions = {entry.domain: entry.version for entry in model.opset_import}
    found: set[str] = set()
    given = {value.name for value in model.graph.input}
    for node in model.graph.node:
        try:
            schema: Any = onnx.defs.get_schema(node.op_type, versions[node.domain], node.domain)
        except onnx.defs.SchemaError:
            continue
        operands = [
            (name, schema.inputs[min(place, len(schema.inputs) - 1)]) for place, name in enumerate(node.input)
        ]
        shared = {formal.type_str for name, formal in operands if name in given}
        for name, formal in operands:
            wide = "tensor(double)" in formal.types and formal.type_str in shared
            if "tensor(float)" in formal.types and not wide:
                found.add(name)
    return found


def _infer_results(model: onnx.ModelProto) -> None:
    """Have results the types that follow from their operands, where ONNX knows them."""
    bare = onnx.ModelProto()
    bare.CopyFrom(model)
    for value in bare.graph.output:
        value.ClearField("type")
    try:
        inferred = onnx.shape_inference.infer_shapes(bare)
    except onnx.shape_inference.InferenceError:
        return
    for value, known in zip(model.graph.output, inferred.graph.output, strict=True):
        if known.type.tensor_type.elem_type:
            value.type.tensor_type.elem_type = known.type.tensor_type.elem_type
        elif value.type.tensor_type.elem_type == _FLOAT:
            value.type.tensor_type.elem_type = _DOUBLE


def _tensors(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.TENSOR:
                yield attribute.t
            elif attribute.type == onnx.AttributeProto.GRAPH:
                yield from _tensors(attribute.g)


def _wide(value: object) -> object:
    return value.astype(float) if isinstance(value, np.ndarray) and value.dtype == np.float32 else value


@dataclass(frozen=True, kw_only=True)
class Differentiated:
    """A compiled case: a call takes its inputs and a cotangent for each of `sources`.

    Attributes:
        wanted: positions of the inputs whose gradients come behind the results; None is a gradient of zero.
        sources: positions of the results that cotangents belong to; zeros: one cotangent for each.
        results: how many results come before the gradients.
    """

    program: Program
    wanted: dict[int, int | None]
    sources: tuple[int, ...]
    zeros: tuple[np.ndarray, ...]
    results: int

    def __call__(
        self, inputs: Sequence[np.ndarray], cotangents: Sequence[np.ndarray]
    ) -> tuple[list[np.ndarray], dict[int, np.ndarray]]:
        """Results, and gradients by the position of their input."""
        tensors = [torch.tensor(value) for value in (*inputs, *cotangents)]
        found = [tensor.numpy() for tensor in self.program(tensors)]
        gradients = {
            place: np.zeros_like(inputs[place]) if at is None else found[at].reshape(inputs[place].shape)
            for place, at in self.wanted.items()
        }
        return found[: self.results], gradients


def differentiated(case: Case) -> Differentiated | None:
    """The program of a case; None where no result depends on a number that has a derivative.

    Raises:
        DacemlError: it is not compiled, or has no gradient.
    """
    from daceml.autodiff.activity import active_arrays
    from daceml.autodiff.engine import add_gradients
    from daceml.autodiff.replacements import replace_for_training
    from daceml.compiler.keys.program_key import model_key
    from daceml.compiler.stages.lowered_network import optimise, transform_operators
    from daceml.compiler.stages.program_folder import build
    from daceml.compiler.stages.stage_timer import Stages
    from daceml.config import config
    from daceml.frontend.onnx_import.importer import import_source
    from daceml.frontend.onnx_import.model_file import ModelSource, checked
    from daceml.runtime.stored_program import StoredProgram
    from daceml.sdfg.scalar import FLOATS
    from daceml.toolchain.cache import Cache, digest

    source = checked(ModelSource(model=case.model, name=case.name))
    network = import_source(source, name="case", process=_onnx_process())
    transform_operators(network, Stages())
    arrays = network.sdfg.arrays
    inputs = [a for a in network.inputs if arrays[a].dtype in FLOATS]
    replace_for_training(network)
    reached = active_arrays(network.sdfg, network.state, inputs, network.outputs)
    outputs = [a for a in dict.fromkeys(network.outputs) if arrays[a].dtype in FLOATS and a in reached]
    if not inputs or not outputs:
        return None
    gradients = add_gradients(network, outputs, inputs)
    found = [gradients.arrays[a] for a in inputs]
    made = list(dict.fromkeys(array for array in found if array is not None))
    results = len(network.outputs)
    for array in made:
        arrays[array].transient = False
    wanted = {
        network.inputs.index(a): None if g is None else results + made.index(g)
        for a, g in zip(inputs, found, strict=True)
    }
    sources = tuple(network.outputs.index(a) for a in gradients.cotangents)
    zeros = tuple(_zeros(network, array) for array in gradients.cotangents)
    network.outputs = (*network.outputs, *made)
    network.inputs = (*network.inputs, *gradients.cotangents.values())
    key = digest("standard_gradients", model_key(source.model, {}, source.weight_names()))

    def make(folder: Path) -> None:
        build(optimise(network, Stages(), training=True), Cache(config().cache_folder), folder, Stages())

    stored = StoredProgram(Cache(config().cache_folder).get("programs", key, make))
    program = Program(stored, source.weights(stored.manifest.weights))
    return Differentiated(program=program, wanted=wanted, sources=sources, zeros=zeros, results=results)


def _zeros(network: Network, array: str) -> np.ndarray:
    """A cotangent of a result; a scalar's array has one element."""
    desc = network.sdfg.arrays[array]
    shape = () if array in network.scalars else tuple(map(int, desc.shape))
    return np.zeros(shape, desc.dtype.type)


@lru_cache(maxsize=1)
def _onnx_process() -> OnnxProcess:
    """One for all cases of a process; it ends with it."""
    from daceml.frontend.onnx_import.onnx_process import OnnxProcess

    return OnnxProcess()
