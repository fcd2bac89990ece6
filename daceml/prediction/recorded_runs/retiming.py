"""A recorded run's device tasks on another device: for each kind of task, the rules that are asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from daceml.devices.specification import Device
from daceml.operations.estimate import DurationSource
from daceml.prediction.recorded_runs import retiming_rules as rules
from daceml.prediction.recorded_runs.device_run import DeviceTask, device_tasks
from daceml.prediction.recorded_runs.retimed_tasks import Guess, RetimedTask, Retiming
from daceml.prediction.recorded_runs.retiming_rules import Question, Rule
from daceml.profiling.trace import Trace
from daceml.simulation.graph import TaskGraph
from daceml.simulation.task import TaskKind

# From the surest to the least sure; the first that answers counts.
RULES: Mapping[TaskKind, Sequence[Rule]] = {
    TaskKind.KERNEL: (
        rules.same_device,
        rules.measured_there,
        rules.wave_scaled,
        rules.known_to_source,
        rules.by_roofline,
        rules.by_rates,
    ),
    TaskKind.COPY: (rules.same_device, rules.host_copy, rules.by_rates),
    TaskKind.MEMSET: (rules.same_device, rules.by_rates),
    TaskKind.COLLECTIVE: (rules.same_device, rules.by_link),
}


def retime(
    graph: TaskGraph,
    trace: Trace,
    *,
    origin: Device,
    destination: Device,
    source: DurationSource | None = None,
    references: Rule | None = None,
    tasks: Sequence[DeviceTask] | None = None,
) -> Retiming:
    """Every task of a device on another one.

    Args:
        graph: of `trace`, durations in microseconds.
        origin: that it was recorded on; destination: that it is predicted for.
        source: of durations of operations on the destination.
        references: what other runs on both devices say (`reference_runs`); asked before rooflines alone.
        tasks: as `device_tasks` gives them, where they are known already.
    Returns:
        times with limits; `reason` says of each why its method was taken, and why surer ones were not.
    """
    question = Question(origin=origin, destination=destination, source=source)
    tasks = device_tasks(graph, trace) if tasks is None else tasks
    return Retiming(graph=graph, tasks=tuple(_retimed(task, question, references) for task in tasks))


def _retimed(task: DeviceTask, question: Question, references: Rule | None) -> RetimedTask:
    refusals: list[str] = []
    found: Guess | None = None
    asked = list(RULES[task.task_kind])
    if references is not None and rules.by_roofline in asked:
        asked.insert(asked.index(rules.by_roofline), references)
    for rule in asked:
        answer = rule(task, question)
        if isinstance(answer, Guess):
            found = answer
            break
        refusals.append(answer)
    found = rules.unchanged(task, refusals[-1]) if found is None else found
    told = [found.reason, *(one for one in dict.fromkeys(refusals) if one != "another device")]
    return RetimedTask(
        task=task.task,
        name=task.name,
        operator=task.operator,
        kind=task.kind,
        recorded_us=task.duration_us,
        duration_us=found.duration_us,
        low_us=found.low_us,
        high_us=found.high_us,
        method=found.method,
        reason="; ".join(told),
        outside=found.outside,
        notes=found.notes,
    )
