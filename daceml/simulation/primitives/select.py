"""Which tasks an edit is about: by name, layer, operator, phase, kind, lane or step, as a mask.

Masks of one graph are joined with &, | and ~.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection

import numpy as np

from daceml.errors import WhatIfError
from daceml.simulation.graph import Mask, TaskGraph
from daceml.simulation.task import EdgeKind, Phase, TaskKind

Text = str | re.Pattern[str] | Callable[[str], bool]


def select(
    graph: TaskGraph,
    *,
    name: Text | None = None,
    layer: Text | None = None,
    operator: Text | None = None,
    phase: Phase | Collection[Phase] | None = None,
    kind: TaskKind | Collection[TaskKind] | None = None,
    lane: Text | None = None,
    step: int | None = None,
) -> Mask:
    """[n] the tasks for which everything that is given holds.

    Args:
        name, layer, operator, lane: a regular expression that is searched for, ignoring case, or a predicate.
            A task's operator is the outermost one of the forward pass that led to it, as `aten::linear` is of
            a product and of its gradient; `aten::mm` is the name of a task itself.
        step: number of a training step.
    Raises:
        WhatIfError: a text is no regular expression.
    """
    taken = np.ones(len(graph), np.bool_)
    for text, column in ((name, "name"), (layer, "layer"), (operator, "operator")):
        if text is not None:
            taken &= graph.where_name(_predicate(text), column)
    if lane is not None:
        holds = _predicate(lane)
        taken &= np.array([holds(known.name) for known in graph.lanes], np.bool_)[graph.tasks.lane]
    if phase is not None:
        taken &= np.isin(graph.tasks.phase, [phase] if isinstance(phase, Phase) else list(phase))
    if kind is not None:
        taken &= np.isin(graph.tasks.kind, [kind] if isinstance(kind, TaskKind) else list(kind))
    if step is not None:
        taken &= graph.tasks.step == step
    return taken


def _predicate(text: Text) -> Callable[[str], bool]:
    if callable(text):
        return text
    try:
        pattern = re.compile(text, re.IGNORECASE) if isinstance(text, str) else text
    except re.error as error:
        raise WhatIfError(
            f"{text!r} is no regular expression", why=str(error), fix="escape what stands for itself with \\"
        ) from error
    return lambda value: pattern.search(value) is not None


def launches_of(graph: TaskGraph, mask: Mask) -> Mask:
    """[n] the calls all of whose work is in the mask: what nobody needs when that work is gone."""
    edges = graph.edges
    launch = edges.kind == EdgeKind.LAUNCH
    given = np.bincount(edges.source[launch], minlength=len(graph))
    taken = np.bincount(edges.source[launch & mask[edges.target]], minlength=len(graph))
    return (given > 0) & (given == taken)


def returns_of(graph: TaskGraph, mask: Mask) -> Mask:
    """[n] the second halves of the calls that copied and waited, whose copies are all in the mask."""
    edges = graph.edges
    returns = graph.where_name(lambda name: name.endswith(" returns")) & (graph.tasks.kind == TaskKind.CALL)
    waits = (edges.kind == EdgeKind.SYNC) & returns[edges.target]
    awaited = np.bincount(edges.target[waits], minlength=len(graph))
    taken = np.bincount(edges.target[waits & mask[edges.source]], minlength=len(graph))
    return (awaited > 0) & (awaited == taken)
