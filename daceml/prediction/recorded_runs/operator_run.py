"""A run on a processor, operator by operator, on another device: what each does, not how it was done.

A device's kernels are launched while others run; here operators follow each other, and what the host takes to
launch them is left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from daceml.devices.roofline import Work, expected, lower_bound
from daceml.devices.specification import Device
from daceml.errors import DeviceError, PredictionError
from daceml.operations.database.records import Operation
from daceml.operations.estimate import DurationSource
from daceml.operations.work.elementwise_work import ELEMENTWISE
from daceml.operations.work.operator_work import operator_name, rule_of, work_of
from daceml.prediction.recorded_runs import retiming_rules as rules
from daceml.prediction.recorded_runs.device_prediction import DevicePrediction
from daceml.prediction.recorded_runs.device_run import DeviceTask
from daceml.prediction.recorded_runs.recorded_operations import operation_of
from daceml.prediction.recorded_runs.retimed_tasks import Guess, RetimedTask, by_class
from daceml.prediction.recorded_runs.retiming_rules import Question
from daceml.profiling.kernel_class import kernel_class
from daceml.profiling.kernel_names import PREFIX, step_costs
from daceml.profiling.trace import EventKind, Trace
from daceml.simulation.analysis.guards import Answer, check_answer
from daceml.simulation.building.attribution import is_wrapper
from daceml.simulation.task import TaskKind

ONE_BY_ONE = "operators follow each other on the device; what the host takes to launch them is not counted"
NO_ORIGIN = (
    "the processor that recorded the run is not described: rates of the destination alone; measure it with "
    "daceml doctor --measure --json and give the file"
)
# By which factor nine in ten are off at most: assumptions, as libraries of a processor and of a GPU have
# nothing in common. Above the roofline alone by more: small operators do not reach the rates of large ones.
_ANOTHER_KIND = (3.0, 3.0)
_ALONE_HIGH = 5.0
# of an operator's own work that operators within it must account for, to stand for it
_ACCOUNTED_FLOPS, _ACCOUNTED_BYTES = 0.9, 0.5
# that do nothing where there is nothing to be done: what they do is what others do within them
_PERHAPS = ("to", "type_as", "contiguous", "reshape", "dropout")


@dataclass(frozen=True, kw_only=True)
class OperatorCall:
    """One call as it was recorded; `operation` and `work` are None where nobody knows what it does."""

    name: str
    duration_us: float
    operation: Operation | None
    work: Work | None


def operator_calls(trace: Trace) -> tuple[OperatorCall, ...]:
    """Operators that do the work: of those within each other, the innermost that account for it."""
    roots: list[_Node] = []
    stacks: dict[int, list[_Node]] = {}
    events, end_us = trace.events, trace.events.end_us
    for event in events.of(EventKind.OPERATOR).tolist():
        stack = stacks.setdefault(int(events.lane[event]), [])
        while stack and end_us[stack[-1].event] <= events.start_us[event]:
            stack.pop()
        node = _Node(event)
        (stack[-1].inner if stack else roots).append(node)
        stack.append(node)
    costs = step_costs(trace)
    found = (call for root in roots for call in _calls(trace, root, costs))
    return tuple(call for call in found if call.work is None or call.work.bytes_moved > 0)


def on_device(
    trace: Trace,
    destination: Device,
    *,
    origin: Device | None = None,
    source: DurationSource | None = None,
    batch: float | None = None,
    steps: int = 1,
) -> DevicePrediction:
    """A step of a run without a device on another one.

    Args:
        origin: the processor; None where nobody described it.
        source: of durations of operations on the destination.
        batch: samples in a recorded step.
        steps: that the trace has.
    Raises:
        PredictionError: of no operator it is known what it does.
    """
    calls = operator_calls(trace)
    known = [call for call in calls if call.work is not None]
    if not known:
        raise PredictionError(
            "it is not known what the operators of this run do",
            where=trace.source,
            why="their shapes were not recorded" if calls else "there are none",
            fix="record with record_shapes=True, as daceml.OperationTracker does",
        )
    tasks = tuple(_retimed(call, place, origin, destination, source) for place, call in enumerate(known))
    unknown = [call for call in calls if call.work is None]
    assumptions = [ONE_BY_ONE, *([NO_ORIGIN] if origin is None else []), *_left_out(unknown, calls)]
    found = DevicePrediction(
        origin=origin,
        destination=destination,
        recorded_us=sum(call.duration_us for call in calls) / steps,
        step_us=sum(one.duration_us for one in tasks) / steps,
        fast_us=sum(one.low_us for one in tasks) / steps,
        slow_us=sum(one.high_us for one in tasks) / steps,
        classes=by_class(tasks, steps),
        tasks=tasks,
        batch=batch,
        assumptions=tuple(assumptions),
    )
    check_answer(
        Answer(
            title=f"a step on {destination.name}", step_us=found.step_us,
            low_us=found.fast_us, high_us=found.slow_us,
        ),
        where=trace.source,
    )  # fmt: skip
    return found


@dataclass
class _Node:
    event: int
    inner: list[_Node] = field(default_factory=list["_Node"])


_Costs = Mapping[tuple[int, int], tuple[float, float]]


def _calls(trace: Trace, node: _Node, costs: _Costs) -> Iterator[OperatorCall]:
    inner = [call for one in node.inner for call in _calls(trace, one, costs)]
    name, details = trace.name_of(node.event), trace.events.details[node.event]
    operation = operation_of(name, details)
    if name.startswith(PREFIX):  # a step of a compiled program, which counted what it does
        known = costs.get((details.get("program", -1), details.get("step", -1)))
        work = None if known is None else Work(flops=known[0], bytes_moved=known[1])
    else:
        work = None if operation is None else work_of(operation)
    own = OperatorCall(
        name=name, duration_us=float(trace.events.duration_us[node.event]), operation=operation, work=work
    )
    within = [call.work for call in inner if call.work is not None]
    if operator_name(name) in _PERHAPS:
        yield from inner
        return
    if work is None:
        # a frame around others says nothing itself; one that nobody knows, and that has none, is told
        if within or is_wrapper(name):
            yield from inner
        elif not node.inner:
            yield own
        else:
            yield from inner or [own]
        return
    flops, moved = sum(one.flops for one in within), sum(one.bytes_moved for one in within)
    accounted = flops >= _ACCOUNTED_FLOPS * work.flops and moved >= _ACCOUNTED_BYTES * work.bytes_moved
    if within and accounted:
        yield from inner
    else:
        yield own


def _retimed(
    call: OperatorCall,
    place: int,
    origin: Device | None,
    destination: Device,
    source: DurationSource | None,
) -> RetimedTask:
    kind = "compiled" if call.name.startswith(PREFIX) else kernel_class("", call.name)
    if kind == "other" and rule_of(operator_name(call.name)) in ELEMENTWISE.values():
        kind = "elementwise"
    task = DeviceTask(
        task=place, name=call.name, task_kind=TaskKind.KERNEL, kind=kind, duration_us=call.duration_us,
        size_bytes=float("nan"), operator=call.name, operation=call.operation, work=call.work, parts=1,
        share=1.0, call=place, launch=None,
    )  # fmt: skip
    found = _guess(task, origin, destination, source)
    return RetimedTask(
        task=place, name=call.name, operator=call.name, kind=kind,
        recorded_us=call.duration_us, duration_us=found.duration_us, low_us=found.low_us,
        high_us=found.high_us, method=found.method, reason=found.reason, outside=found.outside,
        notes=found.notes,
    )  # fmt: skip


def _guess(
    task: DeviceTask, origin: Device | None, destination: Device, source: DurationSource | None
) -> Guess:
    question = Question(origin=origin or destination, destination=destination, source=source)
    answers = [rules.known_to_source(task, question)]
    if origin is not None:
        answers = [rules.same_device(task, question), *answers, _by_roofline(task, question)]
    answers.append(_roofline_alone(task, destination))
    found = next((one for one in answers if isinstance(one, Guess)), None)
    return rules.unchanged(task, str(answers[-1])) if found is None else found


def _by_roofline(task: DeviceTask, question: Question) -> Guess | str:
    found = rules.by_roofline(task, question)
    if isinstance(found, str) or question.origin.kind == question.destination.kind:
        return found
    low, high = _ANOTHER_KIND
    return Guess(
        duration_us=found.duration_us, low_us=found.duration_us / low, high_us=found.duration_us * high,
        method=found.method, reason=found.reason, notes=found.notes,
    )  # fmt: skip


def _roofline_alone(task: DeviceTask, destination: Device) -> Guess | str:
    if task.work is None:
        return "it is not known what the operator does"
    try:
        likely, least = expected(task.work, destination), lower_bound(task.work, destination)
    except DeviceError as error:
        return error.what
    return Guess(
        duration_us=likely.duration_us,
        low_us=min(least.duration_us, likely.duration_us),
        high_us=_ALONE_HIGH * likely.duration_us,
        method="roofline",
        reason=f"rates of {destination.name} alone, limited by {likely.limited_by}",
        outside="the recorded time says nothing of the destination",
        notes=likely.notes,
    )


def _left_out(unknown: Sequence[OperatorCall], calls: Sequence[OperatorCall]) -> list[str]:
    if not unknown:
        return []
    share = sum(call.duration_us for call in unknown) / max(sum(call.duration_us for call in calls), 1e-9)
    names = ", ".join(sorted({call.name for call in unknown})[:6])
    return [f"left out, as nothing says what they do: {names} ({share:.1%} of the recorded time)"]
