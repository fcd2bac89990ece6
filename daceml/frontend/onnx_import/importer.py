"""ONNX model -> network: one SDFG state of ONNX library nodes.

Every ONNX value is an array with one access node (ONNX graphs are in static single assignment form); an input
that no node reads has an array but no access node. Initializers that the model's metadata lists as parameters
or buffers are the network's weights, and only their shape and type are read; every other initializer and
every `Constant` node is a constant. An initializer that is also a graph input (a default that a caller may
override) is a constant, too. A graph output may be a graph input, an initializer, or the same value twice:
its name is kept in `outputs`, and later stages copy.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from pathlib import Path

import dace
import numpy as np
import onnx
import onnx_ir as ir
from dace.subsets import Range

from daceml.errors import OnnxFileError, ShapeError
from daceml.frontend.onnx_import.declared_shape_check import (
    check_initializers,
    check_types,
    declared_alone,
    probe,
)
from daceml.frontend.onnx_import.declared_types import (
    SMALL_ELEMENTS,
    Declared,
    declared,
    from_array,
    unnamed_dims,
)
from daceml.frontend.onnx_import.identifiers import Names, identifier
from daceml.frontend.onnx_import.metadata import ModelMetadata, where
from daceml.frontend.onnx_import.model_file import ModelSource, read_model
from daceml.frontend.onnx_import.normalize_model import prepare
from daceml.frontend.onnx_import.onnx_process import OnnxProcess
from daceml.frontend.onnx_import.shape_values import fold
from daceml.frontend.onnx_import.shapes import Infer, complete_types, infer_here, is_complete, small_values
from daceml.frontend.onnx_import.size_inference import Elements, size_values
from daceml.frontend.onnx_import.symbols import Dim, SymbolTable, free_symbol_names
from daceml.frontend.onnx_import.tensor_types import TensorType, tensor_type
from daceml.frontend.onnx_import.translate_node import (
    constant_value,
    make_node,
    operator_class,
    refuse_sequences,
    refuse_torchs,
)
from daceml.frontend.onnx_import.unresolved_dimensions import fit_dims
from daceml.sdfg.access import add_access
from daceml.sdfg.network import Network


def import_file(path: str | Path, *, name: str, dims: Mapping[str, int] | None = None) -> Network:
    """Read an `.onnx` file and import it; see `read_model` and `import_source`."""
    return import_source(read_model(path), name=name, dims=dims)


def import_source(
    source: ModelSource,
    *,
    name: str,
    dims: Mapping[str, int] | None = None,
    process: OnnxProcess | None = None,
) -> Network:
    """Translate a model that somebody else made: nothing that it says about shapes is believed unseen.

    Large initializers are the network's weights, under their names; graph inputs may leave dimensions open.

    Args:
        source: checked.
        name: name of the SDFG.
        dims: values for named dimensions.
        process: where ONNX's own code runs; one of its own where None.
    Raises:
        ShapeError: besides what `import_model` raises it for, a declared type that the operators do not make,
            or one that depends on data and is not declared.
        OnnxFileError, InvalidNodeError, UnknownOperatorError: see `import_model`.
    """
    with OnnxProcess() if process is None else nullcontext(process) as used:
        model = prepare(source.model, used.convert)
        source.attach(model)
        weights = ModelMetadata(state=source.weight_names(), mutations={})
        return _Import(model, identifier(name), dims or {}, weights, used.infer_shapes).run()


def import_model(
    model: onnx.ModelProto | ir.Model, *, name: str, dims: Mapping[str, int] | None = None
) -> Network:
    """Translate a model of our own exporter into a network of ONNX library nodes; its shapes are believed.

    Args:
        model: not changed; data of parameters and buffers is not touched.
        name: name of the SDFG.
        dims: values for named dimensions, e.g. `{"batch": 8}`; the others become symbols.
    Raises:
        OnnxFileError: the model is malformed.
        UnknownOperatorError: an operator, domain or opset without schema.
        InvalidNodeError: a node that breaks its schema, or has a body.
        ShapeError: a value whose type or shape is unknown, or cannot be held in an array.
    """
    read = prepare(model)
    return _Import(read, identifier(name), dims or {}, ModelMetadata.read(read)).run()


class _Import:
    """State of one import: names, symbols, types, and the SDFG that grows.

    `infer` is given for a model whose declared types are to be checked.
    """

    def __init__(
        self,
        model: ir.Model,
        name: str,
        dims: Mapping[str, int],
        metadata: ModelMetadata,
        infer: Infer | None = None,
    ) -> None:
        self.model = model
        self.graph = model.graph
        self.names = Names()
        self.metadata = metadata
        self.infer = infer
        self.sdfg = dace.SDFG(name)
        self.state = self.sdfg.add_state("network", is_start_block=True)
        self.access: dict[str, dace.nodes.AccessNode] = {}
        self.types: dict[str, TensorType] = {}
        self.constants: dict[str, np.ndarray] = {}
        self.dims = dims
        self.operators: list[ir.Node] = []
        self.classes: dict[int, type] = {}
        self.declared_alone: dict[str, Declared] = {}
        self.sizes: dict[str, Elements] = {}

    def run(self) -> Network:
        self._split_constants()
        for node in self.operators:
            if self.infer is not None:
                refuse_torchs(node)
            self.classes[id(node)] = operator_class(node, self.model)
        self._resolve_types()
        self._declare_arrays()
        for position, node in enumerate(self.operators):
            self._add_node(node, position)
        return self._network()

    def _split_constants(self) -> None:
        """Constant nodes become constants; the other nodes are operators, in the order of the model."""
        for node in self.graph:
            if node.op_type == "Constant" and node.domain in ("", "ai.onnx"):
                self.constants[_name(node.outputs[0])] = constant_value(node)
            else:
                self.operators.append(node)

    def _resolve_types(self) -> None:
        values = self._values()
        known = {name: declared(value) for name, value in values.items()}
        known |= {name: from_array(array) for name, array in self.constants.items() if name in known}
        if self.infer is not None:
            self._name_open_dims(known)
        texts = (dim for entry in known.values() for dim in entry.shape or () if isinstance(dim, str))
        self.symbols = SymbolTable(texts, self.names, self.dims)
        self._check_dims()
        known = {name: self.symbols.resolve(entry) for name, entry in known.items()}
        for value in self._inputs():
            self.symbols.bind(known[_name(value)].shape or ())
        if self.infer is None:
            known = self._completed(known, infer_here)
        else:
            known = self._checked(known)
            self._fold(known)
        if self.symbols.names():
            self.sizes = size_values(self.model, known, self._small_values(), self.symbols)
        for name, entry in known.items():
            place = self._where_made(values[name])
            self.types[name] = tensor_type(entry, self.symbols, value=name, where=place)

    def _name_open_dims(self, known: dict[str, Declared]) -> None:
        taken = {dim for entry in known.values() for dim in entry.shape or () if isinstance(dim, str)}
        for value in self._inputs():
            known[_name(value)] = unnamed_dims(_name(value), known[_name(value)], taken)

    def _completed(self, known: dict[str, Declared], infer: Infer) -> dict[str, Declared]:
        if all(is_complete(entry, self.symbols) for entry in known.values()):
            return known
        return complete_types(self.model, known, self.symbols, self._small_values(), infer)

    def _small_values(self) -> dict[str, np.ndarray]:
        constants = {name: array for name, array in self.constants.items() if array.size <= SMALL_ELEMENTS}
        return small_values(self.model, self.metadata.state) | constants

    def _checked(self, known: dict[str, Declared]) -> dict[str, Declared]:
        """Complete types; what rests on the model's word alone is kept apart, to be checked at every run."""
        assert self.infer is not None
        check_initializers(self.model)
        made = {value.name for node in self.operators for value in node.outputs}
        sources = {name: entry for name, entry in known.items() if name not in made}
        for name, entry in sources.items():
            # an input of unknown type is named before anything is inferred from it
            tensor_type(entry, self.symbols, value=name, where=f"graph {self.graph.name or '(unnamed)'}")
        for node in self.operators:
            refuse_sequences(node, self.classes[id(node)])
        while True:
            given = sources | self.declared_alone
            probes = probe(self.model, given, self.symbols, self._small_values(), self.infer)
            check_types(self.model, known, probes, self.symbols)
            alone = declared_alone(self.model, known, probes, self.symbols)
            if not alone:
                break
            self.declared_alone |= alone
        known = self._completed(known, self.infer)
        while new := fit_dims(self.model, known, probes, self.symbols):
            known = self._completed(known | new, self.infer)
        check_types(self.model, known, probes, self.symbols)
        return known

    def _fold(self, known: dict[str, Declared]) -> None:
        """Integers that follow from constants and sizes become constants: operators ask for them here."""
        found = fold(self.model, known, self._small_values())
        integers = {name: array for name, array in found.items() if array.dtype.kind in "biu"}
        kept = {value.name for value in self.graph.outputs}
        folded = {
            id(node)
            for node in self.operators
            if all(value.name in integers and value.name not in kept for value in node.outputs if value.name)
        }
        self.operators = [node for node in self.operators if id(node) not in folded]
        names = {value.name for node in self.graph if id(node) in folded for value in node.outputs}
        self.constants |= {name: array for name, array in integers.items() if name in names}
        for name in {*self.constants, *self.graph.initializers}.difference(self._used()):
            known.pop(name, None)

    def _values(self) -> dict[str, ir.Value]:
        """Every value that the network holds: inputs, used initializers and constants, results."""
        values = {_name(value): value for value in self._inputs()}
        made = set(values) | set(self.graph.initializers)
        used = self._used()
        for node in self.graph:
            for value in node.inputs:
                if value is not None and value.name and value.name not in made:
                    raise _malformed(f"value {value.name!r} is used before it is defined", where(node))
            for value in node.outputs:
                if value.name and value.name in made:
                    raise _malformed(f"value {value.name!r} is defined twice", where(node))
                if value.name:
                    made.add(value.name)
                    values[value.name] = value
        for name in used:
            if name not in made:
                raise _malformed(f"value {name!r} is used and never defined", f"graph {self.graph.name}")
            if name in self.graph.initializers:
                values[name] = self.graph.initializers[name]
        unused = set(self.constants).difference(used)
        return {name: value for name, value in values.items() if name not in unused}

    def _check_dims(self) -> None:
        if unknown := self.symbols.unknown_values():
            raise ShapeError(
                f"the model has no dimension named {', '.join(map(repr, unknown))}",
                where=f"graph {self.graph.name}",
                why="dims gives it a value; named dimensions: " + (", ".join(self.symbols.names()) or "none"),
                fix="correct the name in dims",
            )

    def _used(self) -> list[str]:
        operands = (value for node in self.operators for value in node.inputs if value is not None)
        read = [value.name for value in operands if value.name]
        returned = [value.name for value in self.graph.outputs if value.name]
        return [*dict.fromkeys([*read, *returned, *self.metadata.mutations.values()])]

    def _inputs(self) -> list[ir.Value]:
        return [value for value in self.graph.inputs if _name(value) not in self.graph.initializers]

    def _where_made(self, value: ir.Value) -> str:
        producer = value.producer()
        if producer is not None:
            return where(producer)
        return f"{'initializer' if value.is_initializer() else 'input'} of graph {self.graph.name}"

    def _declare_arrays(self) -> None:
        outside = {_name(value) for value in [*self._inputs(), *self.graph.outputs]} | set(self.constants)
        outside |= set(self.graph.initializers)
        # Names of the interface first, so that they keep their spelling where two names would collide.
        for name in sorted(self.types, key=lambda name: name not in outside):
            tensor, transient = self.types[name], name not in outside
            self.sdfg.add_array(
                self.names[name], tensor.array_shape, tensor.element.dace_type, transient=transient
            )
        for symbol in sorted(set().union(*map(free_symbol_names, self._dims()))):
            if symbol not in self.sdfg.symbols:  # add_array adds some of them
                self.sdfg.add_symbol(symbol, dace.int64)

    def _dims(self) -> Iterator[Dim]:
        return (dim for tensor in self.types.values() for dim in tensor.shape)

    def _add_node(self, node: ir.Node, position: int) -> None:
        library_node, reads, writes = make_node(node, self.classes[id(node)])
        library_node.position = position
        library_node.shapes_declared = any(value.name in self.declared_alone for value in node.outputs)
        self.state.add_node(library_node)
        for connector, value in reads:
            self.state.add_edge(self._access(value), None, library_node, connector, self._memlet(value))
        for connector, value in writes:
            self.state.add_edge(library_node, connector, self._access(value), None, self._memlet(value))
        library_node.validate(self.sdfg, self.state)

    def _access(self, value: str) -> dace.nodes.AccessNode:
        if value not in self.access:
            self.access[value] = add_access(self.state, self.names[value])
        return self.access[value]

    def _memlet(self, value: str) -> dace.Memlet:
        subset = Range([(0, size - 1, 1) for size in self.types[value].array_shape])
        return dace.Memlet(data=self.names[value], subset=subset)

    def _network(self) -> Network:
        weights, constants = {}, {}
        for name in self._used():
            initializer = self.graph.initializers.get(name)
            if initializer is not None and name in self.metadata.state:
                weights[self.names[name]] = name
            elif initializer is not None:
                constants[self.names[name]] = self._data(initializer)
        for name, array in self.constants.items():
            if name in self.types:
                constants[self.names[name]] = array.reshape(array.shape or (1,))
        mutated = self.metadata.mutations.items()
        mutations = {self.names[new]: self.names[buffer] for new, buffer in mutated if new in self.types}
        outputs = [_name(value) for value in self.graph.outputs]
        return Network(
            sdfg=self.sdfg,
            inputs=tuple(self.names[_name(value)] for value in self._inputs()),
            outputs=tuple(self.names[output] for output in outputs if output not in self.metadata.mutations),
            weights=weights,
            constants=constants,
            sizes={self.names[name]: found for name, found in self.sizes.items() if name in self.types},
            mutations=mutations,
            scalars=frozenset(self.names[name] for name, tensor in self.types.items() if not tensor.shape),
            signature={self.names[name]: name for name in self.types},
        )

    def _data(self, initializer: ir.Value) -> np.ndarray:
        tensor = initializer.const_value
        if tensor is None:
            raise ShapeError(
                f"initializer {initializer.name!r} has no data",
                where=f"graph {self.graph.name}",
                why="its data is needed, as the model's metadata lists it as neither parameter nor buffer",
                fix="load the model with its data, or list the name in the metadata daceml.parameters",
            )
        array = tensor.numpy()
        return array.reshape(array.shape or (1,))


def _name(value: ir.Value) -> str:
    if not value.name:
        raise _malformed("a graph input or output has no name", "the interface of the graph")
    return value.name


def _malformed(what: str, place: str) -> OnnxFileError:
    return OnnxFileError(
        what,
        where=place,
        why="ONNX graphs are in static single assignment form, in topological order",
        fix="run onnx.checker.check_model on the model and mend what it names",
    )
