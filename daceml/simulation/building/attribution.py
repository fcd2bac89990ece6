"""Which operator, layer and phase a task belongs to, from what encloses the call that led to it.

Nothing synchronises for it: a kernel belongs where its launch was made, and what runs backward belongs to the
layer of the forward operator with the same sequence number.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from daceml.profiling.trace import UNKNOWN, EventKind
from daceml.simulation.building.draft import Draft
from daceml.simulation.graph import NOTHING
from daceml.simulation.task import Phase, TaskKind

LAYER = re.compile(r"^daceml\.layer: (?P<path>.+)$")
MODULE = re.compile(r"^nn\.Module: (?P<path>.+)$")
OPTIMIZER = re.compile(r"^Optimizer\.(step|zero_grad)#")
# Autograd's frames: "autograd::engine::evaluate_function: MulBackward0", and the node inside, old and new.
EVALUATE = re.compile(r"^autograd::engine::evaluate_function: ")
BACKWARD_NODE = re.compile(
    r"(^|::)\w+Backward\d*$|^(struct )?torch::autograd::AccumulateGrad|^torch::autograd::CopySlices"
)


def is_wrapper(name: str) -> bool:
    """Whether an operator is a frame of autograd or of the profiler, which does nothing itself."""
    return bool(EVALUATE.match(name) or BACKWARD_NODE.search(name) or name.startswith("ProfilerStep#"))


@dataclass(frozen=True)
class _Context:
    """What encloses a moment of a thread."""

    operator: str = ""
    layer: str = ""
    phase: Phase = Phase.FORWARD
    sequence: int = UNKNOWN


def attribute(draft: Draft) -> None:
    """Give every row its operator, layer and phase."""
    contexts = _contexts(draft)
    for number, context in contexts.of_row.items():
        if context.phase is Phase.BACKWARD and context.sequence in contexts.forward:
            origin = contexts.forward[context.sequence]
            context = replace(context, operator=origin.operator or context.operator, layer=origin.layer)
        row = draft.rows[number]
        row.operator, row.layer, row.phase = context.operator, context.layer, context.phase
    for row in draft.rows:
        if row.kind is TaskKind.DATA:
            row.phase = Phase.DATA
    if not contexts.optimizer_marked:
        _guess_optimizer(draft)
    for row in draft.rows:
        if row.launched_by != NOTHING:
            launch = draft.rows[row.launched_by]
            row.operator, row.layer, row.phase = launch.operator, launch.layer, launch.phase
        elif row.kind.on_device:
            row.phase = Phase.OTHER


@dataclass
class _Found:
    of_row: dict[int, _Context]
    # By sequence number the last operator that has it: those before it made no node of autograd.
    forward: dict[int, _Context]
    optimizer_marked: bool = False


def _contexts(draft: Draft) -> _Found:
    """One sweep over each thread: the stack of what is open at every call."""
    trace, events = draft.trace, draft.trace.events
    found = _Found({}, {})
    stacks: dict[int, list[tuple[float, _Context]]] = {}
    kinds = (EventKind.OPERATOR, EventKind.ANNOTATION, EventKind.PYTHON, EventKind.CALL)
    for event in events.of(*kinds).tolist():
        stack = stacks.setdefault(int(events.lane[event]), [])
        start_us = float(events.start_us[event])
        while stack and stack[-1][0] <= start_us:
            stack.pop()
        context = stack[-1][1] if stack else _Context()
        kind = int(events.kind[event])
        if kind != EventKind.CALL:
            inner = _entered(context, kind, trace.name_of(event), int(events.sequence[event]))
            if inner.phase is Phase.OPTIMIZER:
                found.optimizer_marked = True
            if inner.sequence != UNKNOWN and inner.phase is Phase.FORWARD:
                found.forward[inner.sequence] = inner
            if inner is not context:
                stack.append((start_us + float(events.duration_us[event]), inner))
            context = inner
        row = draft.task_of_event.get(event)
        if row is not None:
            found.of_row[row] = context
    return found


def _entered(context: _Context, kind: int, name: str, sequence: int) -> _Context:
    """What encloses the inside of an event."""
    layer = LAYER.match(name) or (MODULE.match(name) if kind == EventKind.PYTHON else None)
    if layer:
        return replace(context, layer=layer["path"])
    if kind == EventKind.PYTHON:
        return context
    if OPTIMIZER.match(name):
        return replace(context, phase=Phase.OPTIMIZER)
    if EVALUATE.match(name) or BACKWARD_NODE.search(name):
        node = EVALUATE.sub("", name)
        known = sequence if sequence != UNKNOWN else context.sequence
        return replace(context, phase=Phase.BACKWARD, operator=node, sequence=known)
    if kind == EventKind.OPERATOR and context.phase is Phase.FORWARD:
        operator = context.operator or name
        return replace(
            context, operator=operator, sequence=sequence if sequence != UNKNOWN else context.sequence
        )
    if kind == EventKind.OPERATOR and context.phase is Phase.OPTIMIZER and not context.operator:
        return replace(context, operator=name)
    return context


def _guess_optimizer(draft: Draft) -> None:
    """Without its annotation: what a step does after its last backward call, on the thread of the loop."""
    last_us: dict[int, float] = {}
    for row in draft.rows:
        if row.phase is Phase.BACKWARD:
            last_us[row.step] = max(last_us.get(row.step, row.end_us), row.end_us)
    guessed = 0
    for row in draft.rows:
        if (
            row.phase is Phase.FORWARD
            and row.kind is TaskKind.CALL
            and row.begin_us >= last_us.get(row.step, float("inf"))
        ):
            row.phase = Phase.OPTIMIZER
            guessed += 1
    if guessed:
        draft.notes.append(
            "the optimizer is not marked: what follows the backward phase of a step counts as it"
        )
