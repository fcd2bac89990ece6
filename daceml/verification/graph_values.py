"""Intermediate values of a module: its graph run by eager PyTorch, and compiled with each as an output."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import onnx_ir as ir
import torch
from torch import fx
from torch.utils import _pytree as pytree

from daceml.errors import CallError
from daceml.frontend.onnx_export.export import to_onnx
from daceml.frontend.onnx_import.importer import import_model
from daceml.verification.accuracy import TensorError, tensor_error
from daceml.verification.default_type import default_type
from daceml.verification.divergence import Diagnosis, Intermediate, Origin, conclusion, first_divergence
from daceml.verification.instrumented_program import SEEN, instrumented

if TYPE_CHECKING:
    from daceml.module.session import Variant

_NARROW = (torch.float32, torch.float16, torch.bfloat16)
_SEED = 0  # each run draws the same numbers
Tensors = dict[str, torch.Tensor]


def diagnose_module(
    variant: Variant,
    inputs: Sequence[torch.Tensor],
    state: Mapping[str, torch.Tensor],
    expected: Mapping[str, torch.Tensor],
    *,
    outputs_fail: bool,
) -> Diagnosis:
    """Compare every intermediate value of a module for one set of inputs.

    Args:
        variant: the compiled form whose graph is looked at.
        inputs: tensor arguments, flattened.
        state: parameters and buffers by their keys; not changed.
        expected: what the module itself returns in float64, in order.
        outputs_fail: whether a result of the program itself is outside its limit.
    Raises:
        CallError: the graph cannot be run node by node.
    """
    model = to_onnx(variant.exported)
    graph = _Graph.of(model, variant)
    arguments = graph.arguments(variant, inputs, state)
    copies = {key: tensor.detach().clone() for key, tensor in state.items()}
    _expose(model, list(graph.origins))
    network = import_model(model, name="network")
    levels, recipe = variant.auto_optimize, variant.recipe()
    with instrumented(network, lambda _: copies, levels=levels, recipe=recipe) as (program, chosen):
        given = [x if x.is_contiguous() else x.contiguous() for x in inputs]
        torch.manual_seed(_SEED)
        results = program(given)[-len(graph.origins) :] if graph.origins else []
    compiled = dict(zip(graph.origins, results, strict=True))
    torch.manual_seed(_SEED)
    eager = graph.run(arguments, {}, wide=False)
    torch.manual_seed(_SEED)
    reference = graph.run(arguments, {}, wide=True)
    values: list[Intermediate] = []
    for name, origin in graph.origins.items():
        error = tensor_error(name, compiled[name], eager[name], reference[name], depth=origin.depth)
        by = ", ".join(dict.fromkeys(chosen[n] for n in graph.parts[name] if n in chosen))
        values.append(Intermediate(origin=origin, implementation=by or "unknown", error=error))
    first = first_divergence(values)
    alone = None if first is None else graph.alone(first.origin.name, compiled, arguments)
    sentences = graph.export_differences(reference, expected)
    if not sentences or first is not None:
        sentences += conclusion(values, alone, outputs_fail=outputs_fail)
    if variant.optimised is not None:
        sentences += ("hooks of the compilation changed the program, and were not applied here",)
    return Diagnosis(
        values=tuple(values),
        first=first,
        alone=alone,
        conclusion=sentences,
    )


@dataclass(frozen=True, kw_only=True)
class _Graph:
    """The graph that was translated.

    Attributes:
        graph: of torch.fx, functional.
        root: where the graph finds its attributes.
        nodes: ONNX value -> the node of the graph with the same value.
        origins: ONNX value -> where it comes from, in topological order.
        buffers: how many of the graph's first outputs are new values of buffers.
        parts: ONNX value -> the values of all ONNX nodes that its operator became.
    """

    graph: fx.Graph
    root: torch.nn.Module
    nodes: dict[str, fx.Node]
    origins: dict[str, Origin]
    parts: dict[str, tuple[str, ...]]
    buffers: int

    @classmethod
    def of(cls, model: ir.Model, variant: Variant) -> _Graph:
        made = [(node, node.meta["node"]) for node in model.graph if "node" in node.meta]
        if not made:
            raise CallError(
                "intermediate values cannot be compared",
                why="torch's public exporter does not say which node of the graph an ONNX node comes from",
                fix="unset DACEML_PUBLIC_EXPORTER, or use torch 2.11 to 2.13",
            )
        graph: fx.Graph = made[0][1].graph
        by_name = {node.name: node for node in graph.nodes}
        buffers = len(json.loads(model.metadata_props.get("daceml.buffer_mutations", "{}")))
        onnx_names = _output_names(model, graph, buffers)
        nodes: dict[str, fx.Node] = {}
        operators: dict[fx.Node, list[ir.Node]] = {}
        for node, origin in made:
            if node.op_type != "Constant":
                operators.setdefault(origin, []).append(node)
            for value in node.outputs:
                same = by_name.get(onnx_names.get(str(value.name), str(value.name)))
                if same is not None and isinstance(same.meta.get("val"), torch.Tensor):
                    nodes[str(value.name)] = same
        order = {node: position for position, node in enumerate(graph.nodes)}
        nodes = dict(sorted(nodes.items(), key=lambda item: order[item[1]]))
        names = {node: name for name, node in nodes.items()}
        depths = _depths(graph)
        origins: dict[str, Origin] = {}
        parts: dict[str, tuple[str, ...]] = {}
        for name, node in nodes.items():
            maker = node if node in operators else node.all_input_nodes[0] if node.all_input_nodes else node
            made_of = _needed(name, operators.get(maker, []))
            provenance = made_of[-1].metadata_props if made_of else {}
            origins[name] = Origin(
                name=name,
                operator=", ".join(dict.fromkeys(part.op_type for part in made_of)) or str(maker.target),
                operands=tuple(dict.fromkeys(names[operand] for operand in _operands(node, names))),
                module_path=provenance.get("daceml.module", ""),
                source=provenance.get("daceml.source", ""),
                depth=max(depths[node], 1),
            )
            parts[name] = tuple(str(value.name) for part in made_of for value in part.outputs)
        root = graph.owning_module or variant.exported.graph_module
        return cls(graph=graph, root=root, nodes=nodes, origins=origins, parts=parts, buffers=buffers)

    def arguments(
        self, variant: Variant, inputs: Sequence[torch.Tensor], state: Mapping[str, torch.Tensor]
    ) -> list[Any]:
        """What the graph's placeholders stand for."""
        known: dict[str, Any] = {**variant.exported.constants, **variant.exported.state_dict, **state}
        tensors = iter(inputs)
        arguments: list[Any] = []
        for spec in variant.exported.graph_signature.input_specs:
            if spec.kind.name != "USER_INPUT":
                arguments.append(known[str(spec.target)])
            elif hasattr(spec.arg, "value"):
                arguments.append(spec.arg.value)  # pyright: ignore[reportAttributeAccessIssue]
            else:
                arguments.append(next(tensors))
        count = sum(node.op == "placeholder" for node in self.graph.nodes)
        if count != len(arguments):
            raise CallError(
                "intermediate values cannot be compared",
                why=f"the functional graph has {count} inputs, the exported program {len(arguments)}",
                fix="compare submodules one by one to find the operator",
            )
        return arguments

    def run(self, arguments: Sequence[Any], known: Mapping[fx.Node, torch.Tensor], *, wide: bool) -> Tensors:
        """Every value by its ONNX name; `known` ones are taken as they are. In float64 if `wide`."""
        recorder = _Recorder(self.root, self.graph, wide=wide)
        torch.manual_seed(0)
        with default_type(torch.float64 if wide else torch.get_default_dtype()), torch.no_grad():
            recorder.run(
                *_widened(arguments, wide), initial_env={n: _widened(x, wide) for n, x in known.items()}
            )
        return {name: recorder.values[node] for name, node in self.nodes.items() if node in recorder.values}

    def export_differences(self, reference: Tensors, expected: Mapping[str, torch.Tensor]) -> tuple[str, ...]:
        """Sentences about results that the graph itself computes differently from the module, in float64."""
        names = {node: name for name, node in self.nodes.items()}
        returned: Any = self.graph.output_node().args[0]
        results: list[Any] = list(returned)[self.buffers :]
        differing: list[str] = []
        for node, (place, truth) in zip(results, expected.items(), strict=False):
            if node not in names:
                continue
            value = reference[names[node]]
            if value.shape != truth.shape or not torch.allclose(
                value.double(), truth.double(), rtol=1e-6, atol=1e-6, equal_nan=True
            ):
                differing.append(place)
        if not differing:
            return ()
        return (
            f"the exported graph itself computes another {', '.join(differing)} than the module, in float64: "
            "forward does something else while torch.export traces it, or the export is wrong",
        )

    def alone(self, name: str, compiled: Mapping[str, torch.Tensor], arguments: Sequence[Any]) -> TensorError:
        """The operator of one value on the compiled program's operands, whatever became of those."""
        known = {self.nodes[other]: value for other, value in compiled.items() if other != name}
        eager, reference = (self.run(arguments, known, wide=wide)[name] for wide in (False, True))
        return tensor_error(name, compiled[name], eager, reference, depth=1)


class _Recorder(fx.Interpreter):
    """Runs a graph and keeps what every node computed; in float64 it also replaces types that nodes name."""

    def __init__(self, root: torch.nn.Module, graph: fx.Graph, *, wide: bool) -> None:
        super().__init__(root, garbage_collect_values=False, graph=graph)
        self.wide = wide
        self.values: dict[fx.Node, torch.Tensor] = {}

    def run_node(self, n: fx.Node) -> Any:
        result = super().run_node(n)
        if isinstance(result, torch.Tensor):
            self.values[n] = result
        return result

    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return super().call_function(target, _wide_types(args, self.wide), _wide_types(kwargs, self.wide))

    def get_attr(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return _widened(super().get_attr(target, args, kwargs), self.wide)


def _wide_types(values: Any, wide: bool) -> Any:
    return (
        pytree.tree_map_only(torch.dtype, lambda t: torch.float64 if t in _NARROW else t, values)
        if wide
        else values
    )


def _widened(values: Any, wide: bool) -> Any:
    def double(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.detach().double() if tensor.dtype in _NARROW else tensor

    return pytree.tree_map_only(torch.Tensor, double, values) if wide else values


def _output_names(model: ir.Model, graph: fx.Graph, buffers: int) -> dict[str, str]:
    """ONNX output -> node of the graph; the graph returns new values of buffers first, ONNX last."""
    returned: Any = graph.output_node().args[0]
    nodes = [*returned[buffers:], *returned[:buffers]]
    names = [str(value.name) for value in model.graph.outputs]
    if len(nodes) != len(names):
        return {}
    return {onnx: node.name for onnx, node in zip(names, nodes, strict=True) if isinstance(node, fx.Node)}


def _expose(model: ir.Model, names: Sequence[str]) -> None:
    """Give a model a copy of each value as a further output. Mutates it."""
    values = {value.name: value for node in model.graph for value in node.outputs}
    for name in names:
        value = values[name]
        copy = ir.Node("", "Identity", [value], num_outputs=1, name=f"see_{name}")
        copy.outputs[0].name = name + SEEN
        copy.outputs[0].type, copy.outputs[0].shape = value.type, value.shape
        model.graph.append(copy)
        model.graph.outputs.append(copy.outputs[0])


def _needed(name: str, made_of: Sequence[ir.Node]) -> list[ir.Node]:
    """Those of an operator's ONNX nodes that one of its results is computed by."""
    wanted, needed = {name}, list[Any]()
    for node in reversed(made_of):
        if wanted & {str(value.name) for value in node.outputs}:
            needed.insert(0, node)
            wanted |= {str(value.name) for value in node.inputs if value is not None}
    return needed


def _operands(node: fx.Node, names: Mapping[fx.Node, str]) -> list[fx.Node]:
    """The nearest compared nodes that a node is computed from."""
    found: list[fx.Node] = []
    waiting, seen = list(node.all_input_nodes), {node}
    while waiting:
        operand = waiting.pop(0)
        if operand in seen:
            continue
        seen.add(operand)
        if operand in names:
            found.append(operand)
        else:
            waiting += operand.all_input_nodes
    return found


def _depths(graph: fx.Graph) -> dict[fx.Node, int]:
    """Operators on the longest way from the inputs to each node."""
    depths: dict[fx.Node, int] = {}
    for node in graph.nodes:
        before = max((depths[operand] for operand in node.all_input_nodes), default=0)
        depths[node] = before + (node.op == "call_function")
    return depths
