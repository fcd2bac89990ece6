"""Networks of single forward and backward nodes, run with torch tensors."""

from __future__ import annotations

import inspect
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import dace
import torch

from daceml.autodiff.vjp import DOMAIN, Rule, rules_of
from daceml.compiler.keys.program_key import package_digest
from daceml.compiler.stages.lowered_network import Optimised
from daceml.compiler.stages.program_folder import build
from daceml.compiler.stages.stage_timer import Stages
from daceml.config import config
from daceml.onnx_ops.lowering import LoweringReport, lower
from daceml.onnx_ops.registry import KINDS, Kind
from daceml.onnx_ops.schema.nodes import node_class
from daceml.onnx_ops.tracing.tensor import Tensor, element_reader
from daceml.runtime.program import Program
from daceml.runtime.stored_program import StoredProgram
from daceml.runtime.torch_types import DTYPES
from daceml.sdfg.element_codes import TORCH_CODES
from daceml.sdfg.network import Network
from daceml.toolchain.cache import Cache, digest
from daceml.toolchain.cxx import toolchain
from daceml.transformations.hardware.cpu_schedule import schedule_maps

Value = torch.Tensor | Sequence[torch.Tensor] | None
Values = Mapping[str, Value]


@dataclass(frozen=True, kw_only=True)
class Node:
    """One node: operands by formal name, a sequence for a variadic formal, None or nothing for an absent one.

    Attributes:
        outputs: tensors of the shape and element type of each result; their elements do not matter.
        constants: inputs whose elements are known when the node is lowered.
        symbolic: size -> symbol, or expression of symbols, that stands for it wherever an operand has that
            size.
    """

    op: str
    inputs: Values
    outputs: Values
    attributes: Mapping[str, Any] = field(default_factory=dict[str, Any])
    domain: str = ""
    constants: Sequence[str] = ()
    symbolic: Mapping[int, str] = field(default_factory=dict[int, str])


@dataclass(frozen=True, kw_only=True)
class Run:
    """Results of each node by formal name (`Inputs__0` of a variadic one), and what each node was done by."""

    results: list[dict[str, torch.Tensor]]
    chosen: list[str]
    refusals: list[dict[str, str]]


def run(*nodes: Node, allowed: Sequence[Kind] = KINDS) -> Run:
    """Compile nodes that are not connected into one program, and run it."""
    network, feeds = network_of(nodes)
    report = lower(network, allowed=allowed)
    network.sdfg.validate()
    chosen = (n.chosen for n in report.nodes)  # others than usual, where something stands in for a device
    values = compiled(network, report, *map(_text, nodes), *allowed, *chosen)(feeds)
    results: list[dict[str, torch.Tensor]] = [{} for _ in nodes]
    for name, value in zip(network.outputs, values, strict=True):
        number, _, connector = name[1:].partition("_")
        results[int(number)][connector] = value
    return Run(
        results=results,
        chosen=[n.chosen for n in _in_order(report)],
        refusals=[dict(n.refusals) for n in _in_order(report)],
    )


def compiled(network: Network, report: LoweringReport | None = None, *key: str) -> Program:
    """The program of a lowered network.

    Args:
        key: all that decides what it is, where it may come from the cache.
    """
    schedule_maps(network)
    optimised = Optimised(
        network=network,
        lowering=report or LoweringReport(nodes=()),
        unfused={},
    )
    cache = Cache(config().cache_folder)

    def write(folder: Path) -> None:
        build(optimised, cache, folder, Stages())

    parts = key or (uuid.uuid4().hex,)
    name = digest("nodes", *parts, toolchain().fingerprint, package_digest())
    return Program(StoredProgram(cache.get("programs", name, write)), {})


def gradients(
    op: str,
    inputs: Values,
    outputs: Values,
    cotangents: Values,
    wanted: Sequence[str],
    attributes: Mapping[str, Any] | None = None,
    *,
    domain: str = "",
    constants: Sequence[str] = (),
    symbolic: Mapping[int, str] | None = None,
    allowed: Sequence[Kind] = KINDS,
) -> dict[str, torch.Tensor]:
    """What the rules of an operator give for the inputs wanted; `Inputs__0` is one of a variadic input."""
    nodes = gradient_nodes(
        op,
        inputs,
        outputs,
        cotangents,
        wanted,
        attributes,
        domain=domain,
        constants=constants,
        symbolic=symbolic,
    )
    found: dict[str, torch.Tensor] = {}
    for result in run(*nodes, allowed=allowed).results:
        found |= {connector.removeprefix("d"): value for connector, value in result.items()}
    return found


def gradient_nodes(
    op: str,
    inputs: Values,
    outputs: Values,
    cotangents: Values,
    wanted: Sequence[str],
    attributes: Mapping[str, Any] | None = None,
    *,
    domain: str = "",
    constants: Sequence[str] = (),
    symbolic: Mapping[int, str] | None = None,
) -> list[Node]:
    """Backward nodes that together give the gradients wanted, each by the first rule that gives it."""
    known = {**inputs, **outputs}
    nodes: list[Node] = []
    missing = list(wanted)
    for rule in rules_of(op, domain):
        mine = [w for w in missing if w.partition("__")[0] in rule.wrt]
        if not mine or _refusal(rule, inputs, attributes or {}, constants) is not None:
            continue
        missing = [w for w in missing if w not in mine]
        nodes.append(
            Node(
                op=rule.node.op_type,
                domain=DOMAIN,
                inputs={
                    **{k: known.get(k) for k in rule.keeps},
                    **{f"d{c}": cotangents.get(c) for c in rule.cotangents},
                },
                outputs={
                    f"d{name}": _wanted(name, inputs[name], mine) for name in rule.wrt if name in inputs
                },
                attributes=attributes or {},
                constants=[c for c in constants if c in rule.keeps],
                symbolic=symbolic or {},
            )
        )
    assert not missing, f"no rule of {op} gives the gradients of {missing}"
    return nodes


def network_of(nodes: Sequence[Node]) -> tuple[Network, list[torch.Tensor]]:
    """A network of one state with these nodes, and its inputs' values; arrays are `n<node>_<connector>`."""
    sdfg = dace.SDFG("nodes")
    state = sdfg.add_state("main")
    feeds: dict[str, torch.Tensor] = {}
    outputs: list[str] = []
    constants: dict[str, Any] = {}
    scalars: set[str] = set()
    for number, described in enumerate(nodes):
        ins, outs = _actuals(described.inputs), _actuals(described.outputs)
        cls = node_class(described.op, domain=described.domain)
        node = cls(inputs=list(ins), outputs=list(outs), onnx_name=f"/{number}", **described.attributes)
        state.add_node(node)
        for connector, value in (*ins.items(), *outs.items()):
            name = f"n{number}_{connector}"
            texts = [described.symbolic.get(s, s) for s in value.shape] or [1]
            extents = [s if isinstance(s, int) else dace.symbolic.pystr_to_symbolic(s) for s in texts]
            for symbol in {str(x) for e in extents if not isinstance(e, int) for x in e.free_symbols}:
                if symbol not in sdfg.symbols:
                    sdfg.add_symbol(symbol, dace.int64)
            sdfg.add_array(name, extents, _DACE_TYPES[value.dtype])
            memlet = dace.Memlet.from_array(name, sdfg.arrays[name])
            if value.dim() == 0:
                scalars.add(name)
            if connector in outs:
                state.add_edge(node, connector, state.add_access(name), None, memlet)
                outputs.append(name)
                continue
            state.add_edge(state.add_access(name), None, node, connector, memlet)
            if connector in described.constants:
                constants[name] = value.numpy()
            else:
                feeds[name] = value.contiguous()
    network = Network(
        sdfg=sdfg,
        inputs=tuple(feeds),
        outputs=tuple(outputs),
        constants=constants,
        scalars=frozenset(scalars),
    )
    return network, list(feeds.values())


_DACE_TYPES = {DTYPES[code]: dace_type for dace_type, code in TORCH_CODES.items()}


def _text(node: Node) -> str:
    """Everything about a node that decides what is generated for it."""
    operands = [
        (name, str(v.dtype), tuple(v.shape), v.tolist() if name in node.constants else None)
        for side in (node.inputs, node.outputs)
        for name, v in _actuals(side).items()
    ]
    return repr(
        (node.domain, node.op, operands, sorted(node.attributes.items()), sorted(node.symbolic.items()))
    )


def _actuals(values: Values) -> dict[str, torch.Tensor]:
    found: dict[str, torch.Tensor] = {}
    for formal, value in values.items():
        if isinstance(value, torch.Tensor):
            found[formal] = value
        elif value is not None:
            found |= {f"{formal}__{i}": v for i, v in enumerate(value) if v is not None}
    return found


def _wanted(name: str, value: Value, wanted: Sequence[str]) -> Value:
    """Templates of the gradients wanted of an input."""
    if isinstance(value, torch.Tensor) or value is None:
        return value if name in wanted else None
    return [v if f"{name}__{i}" in wanted else None for i, v in enumerate(value)]  # pyright: ignore


def _refusal(
    rule: Rule, inputs: Values, attributes: Mapping[str, Any], constants: Sequence[str]
) -> str | None:
    """What the condition of a rule says about operands, whose elements it sees where they are constants."""
    if rule.when is None:
        return None
    formals = rule.node.schema.attributes
    known: dict[str, Any] = {name: attribute.default for name, attribute in formals.items()} | dict(
        attributes
    )
    known |= {
        name: value if value is None else _described(value, name in constants)
        for name, value in inputs.items()
    }
    return rule.when(**{name: known.get(name) for name in inspect.signature(rule.when).parameters})


def _described(value: torch.Tensor | Sequence[torch.Tensor], known: bool) -> Any:
    if not isinstance(value, torch.Tensor):
        return tuple(_described(v, known) for v in value)
    dtype = _DACE_TYPES[value.dtype]
    reader = element_reader("operand", dtype, tuple(value.shape))
    return Tensor(tuple(value.shape), dtype, reader, value=value.numpy() if known else None)


def _in_order(report: LoweringReport) -> list[Any]:
    return sorted(report.nodes, key=lambda n: int(n.onnx_name[1:]))
