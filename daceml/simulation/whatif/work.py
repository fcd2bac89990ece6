"""Which tasks do the work of a model, and of which kind of layer: on a device kernels, else operators."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from daceml.simulation.graph import NOTHING, Mask, TaskGraph
from daceml.simulation.primitives.select import select
from daceml.simulation.task import TaskKind
from daceml.simulation.whatif.kernel_classes import COMPUTE, COMPUTE_OPERATOR

LayerClass = Literal["batch norm", "activation", "pooling", "convolution"]


@dataclass(frozen=True)
class _Patterns:
    operator: str
    kernel: str


LAYERS: dict[LayerClass, _Patterns] = {
    "batch norm": _Patterns(r"batch_?norm", r"bn_(fw|bw)|batch_?norm"),
    "activation": _Patterns(
        r"relu|gelu|silu|elu_?$|sigmoid|tanh|threshold|mish|hardswish|swish",
        r"relu|threshold|clamp|gelu|silu",
    ),
    "pooling": _Patterns(r"pool", r"pool"),
    "convolution": _Patterns(r"conv", r"conv|winograd|dgrad|wgrad|fprop"),
}


def has_device(graph: TaskGraph) -> bool:
    """Whether a device runs the work."""
    return bool((graph.tasks.kind == TaskKind.KERNEL).any())


def work(graph: TaskGraph) -> Mask:
    """[n] kernels; in a run without a device, operators."""
    return graph.tasks.kind == (TaskKind.KERNEL if has_device(graph) else TaskKind.OPERATOR)


def computes(graph: TaskGraph) -> Mask:
    """[n] the work that products and convolutions are, bound by arithmetic rather than by memory."""
    if has_device(graph):
        return work(graph) & select(graph, name=COMPUTE)
    return work(graph) & select(graph, name=COMPUTE_OPERATOR)


def of_layers(graph: TaskGraph, kind: LayerClass) -> Mask:
    """[n] the work of layers of a kind: by the operator that led to it, where that is unknown by its name."""
    patterns = LAYERS[kind]
    if not has_device(graph):
        return work(graph) & (
            select(graph, name=patterns.operator) | select(graph, operator=patterns.operator)
        )
    unknown = graph.tasks.operator == NOTHING
    named = select(graph, operator=patterns.operator) | (unknown & select(graph, name=patterns.kernel))
    return work(graph) & named


def neighbours(graph: TaskGraph, of: Mask, *, among: Mask, before: bool) -> Mask:
    """[n] the tasks of `among` right before (or after) one of `of` on their lane."""
    near = graph.structure.after if before else graph.structure.before
    return among & np.where(near >= 0, of[near], False)
