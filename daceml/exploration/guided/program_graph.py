"""The graph of a program: steps, and the arrays that they hand each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from daceml.compiler.stages.manifest_writer import make_manifest
from daceml.sdfg.sizes import size_bytes
from daceml.tuning.model_call import Lowered

if TYPE_CHECKING:
    from dace.data import Data

    from daceml.codegen.planning.plan import Plan
    from daceml.runtime.records.manifest import StepRecord


@dataclass(frozen=True, kw_only=True)
class Node:
    """One step.

    Attributes:
        half: "forward" or "backward".
        kind: as in `StepRecord`.
        path: of the innermost module that everything in it comes from.
        source: the user's line.
        operators: that it computes, or computes a part of, by their ONNX types.
        arrays: that it reads or writes, and those that disappeared into it.
        weights: state_dict keys that it reads.
    """

    half: str
    kind: str
    label: str
    path: str
    source: str
    operators: tuple[str, ...]
    implementation: str
    refusals: tuple[str, ...]
    unique_bytes: int
    flops: int
    special_functions: int
    arrays: tuple[str, ...]
    weights: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Edge:
    """An array on its way from the step that wrote it last to one that reads it.

    Attributes:
        source, target: places of steps.
    """

    source: int
    target: int
    array: str
    size_bytes: int
    shape: tuple[str, ...]
    dtype: str


@dataclass(frozen=True, kw_only=True)
class Graph:
    """Steps in their order, forward then backward."""

    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]


def graph_of(lowered: Lowered) -> Graph:
    """The graph of lowered programs, which still have their plans."""
    nodes: list[Node] = []
    edges: list[Edge] = []
    written: dict[str, int] = {}  # of the forward pass: array -> the step that wrote it last
    for half, plan, optimised in zip(
        ("forward", "backward"), lowered.plans, lowered.making.made, strict=False
    ):
        manifest = make_manifest(
            plan, optimised.lowering, absorbed=optimised.absorbed, constants=(), fallbacks=()
        )
        writers = {} if half == "forward" else _handed_on(lowered, plan, written)
        first = len(nodes)
        for i, step in enumerate(plan.steps):
            edges += _edges(plan, i, first, writers)
            writers |= {plan.roots[array]: first + i for array in step.writes if array in plan.roots}
            absorbed = [a for array in step.writes for a in optimised.absorbed.get(array, ())]
            arrays = dict.fromkeys((*step.reads, *step.writes, *absorbed))
            nodes.append(_node(half, manifest.steps[i], tuple(arrays), _weights(plan, step.reads)))
        written = writers
    return Graph(nodes=tuple(nodes), edges=tuple(edges))


def _edges(plan: Plan, place: int, first: int, writers: dict[str, int]) -> list[Edge]:
    """What a step reads that other steps wrote, or, of inputs, nobody did."""
    found: list[Edge] = []
    for root in dict.fromkeys(plan.roots[array] for array in plan.steps[place].reads if array in plan.roots):
        if root in writers:
            desc = plan.network.sdfg.arrays[root]
            found.append(
                Edge(
                    source=writers[root],
                    target=first + place,
                    array=root,
                    size_bytes=_bytes(desc),
                    shape=tuple(map(str, desc.shape)),
                    dtype=desc.dtype.to_string(),
                )
            )
    return found


def _handed_on(lowered: Lowered, backward: Plan, written: dict[str, int]) -> dict[str, int]:
    """The backward program's names of what steps of the forward pass wrote and the backward pass reads."""
    record = lowered.making.record
    assert record is not None, "programs with a backward pass have a record"
    forward, inputs = lowered.plans[0], backward.network.inputs
    first = len(record.cotangents)
    found: dict[str, int] = {}
    for i, place in enumerate(record.saved):
        array = forward.network.outputs[place]
        root = forward.roots.get(array, array)
        if root in written and first + i < len(inputs):
            name = inputs[first + i]
            found[backward.roots.get(name, name)] = written[root]
    return found


def _weights(plan: Plan, reads: Sequence[str]) -> tuple[str, ...]:
    roots = (plan.roots.get(array, array) for array in reads)
    return tuple(dict.fromkeys(plan.network.weights[root] for root in roots if root in plan.network.weights))


def _node(half: str, step: StepRecord, arrays: tuple[str, ...], weights: tuple[str, ...]) -> Node:
    operators = dict.fromkeys(node.operator for node in step.nodes)
    paths = [node.module_path for node in step.nodes] or step.module_path.split(", ")
    return Node(
        half=half, kind=step.kind, label=step.label, path=_shared(paths), source=step.source,
        operators=tuple(operators), implementation=step.implementation, refusals=step.refusals,
        unique_bytes=step.unique_bytes, flops=step.flops, special_functions=step.special_functions,
        arrays=arrays, weights=weights,
    )  # fmt: skip


def _shared(paths: Sequence[str]) -> str:
    """The innermost module that holds all of them: layers.0 of layers.0.norm and layers.0.out."""
    shared: list[str] = []
    for parts in zip(*(path.split(".") for path in paths), strict=False):
        if len(set(parts)) > 1:
            break
        shared.append(parts[0])
    return ".".join(shared)


def _bytes(desc: Data) -> int:
    amount = size_bytes(desc)
    return amount if isinstance(amount, int) else 0
