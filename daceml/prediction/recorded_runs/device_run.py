"""The device's side of a recorded run: of every task its launch, and the call that it is a part of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any, cast

from daceml.devices.roofline import Work
from daceml.operations.database.records import Operation
from daceml.operations.work.operator_work import work_of
from daceml.prediction.recorded_runs.recorded_operations import Launched, recorded_operations
from daceml.profiling.kernel_class import KernelClass, kernel_class
from daceml.profiling.kernel_names import function_of, kernel_costs
from daceml.profiling.trace import EventKind, Trace
from daceml.simulation.graph import TaskGraph
from daceml.simulation.task import TaskKind

_NOBODY = Launched()


@dataclass(frozen=True, kw_only=True)
class Launch:
    """How a kernel was launched, as far as the profiler says."""

    blocks: int
    threads: int
    registers: int
    shared_bytes: int


@dataclass(frozen=True, kw_only=True)
class DeviceTask:
    """A kernel, copy or memset as it ran.

    Attributes:
        task: index in the graph.
        operation, work: of the whole call, of a compiled kernel its own; None where they are not known.
        parts: kernels that the work is of.
        share: of the call's time on the device that is this kernel's.
        call: number of the operator's call that it is a part of; -1 where nobody knows.
        launch: None where the profiler did not record it (AMD's has no registers).
    """

    task: int
    name: str
    task_kind: TaskKind
    kind: KernelClass
    duration_us: float
    size_bytes: float
    operator: str
    operation: Operation | None
    work: Work | None
    parts: int
    share: float
    call: int
    launch: Launch | None


def device_tasks(graph: TaskGraph, trace: Trace) -> tuple[DeviceTask, ...]:
    """Every task of the graph that a device runs, in the order of the graph.

    Args:
        trace: that the graph was built of; another graph's tasks have no operations and no launches.
    """
    launched, place = recorded_operations(trace), _events(trace)
    tasks = graph.tasks
    rows = [index for index in range(len(graph)) if TaskKind(int(tasks.kind[index])).on_device]
    events = {
        index: place.get(
            (graph.lanes[tasks.lane[index]].name, float(tasks.recorded_us[index]), graph.name_of(index)), -1
        )
        for index in rows
    }
    calls = {index: launched.get(event, _NOBODY) for index, event in events.items()}
    # copies and memsets that a call makes besides are not what its flops and bytes stand for
    kernels = [index for index in rows if tasks.kind[index] == TaskKind.KERNEL and calls[index].event >= 0]
    parts = Counter(calls[index].event for index in kernels)
    total_us: Counter[int] = Counter()
    for index in kernels:
        total_us[calls[index].event] += float(tasks.duration_us[index])  # pyright: ignore[reportArgumentType]
    costs = kernel_costs(trace)
    works: dict[int, Work | None] = {}
    found: list[DeviceTask] = []
    for index in rows:
        call, is_kernel = calls[index], tasks.kind[index] == TaskKind.KERNEL
        operation = call.operation if is_kernel else None
        if operation is not None and call.event not in works:
            works[call.event] = work_of(operation)
        duration_us = float(tasks.duration_us[index])
        whole_us = float(total_us[call.event]) if call.event >= 0 else 0.0
        name = graph.name_of(index)
        own = costs.get(function_of(name) or "")
        kind = TaskKind(int(tasks.kind[index]))
        found.append(
            DeviceTask(
                task=index,
                name=name,
                task_kind=kind,
                kind=_class(kind, name, call.operator),
                duration_us=duration_us,
                size_bytes=float(tasks.size_bytes[index]),
                operator=call.operator,
                operation=operation,
                work=Work(flops=own[0], bytes_moved=own[1])
                if own is not None
                else (works.get(call.event) if operation is not None else None),
                parts=max(parts[call.event], 1) if is_kernel and own is None else 1,
                share=duration_us / whole_us if is_kernel and whole_us > 0 and own is None else 1.0,
                call=call.event,
                launch=_launch(trace.events.details[events[index]]) if events[index] >= 0 else None,
            )
        )
    return tuple(found)


def _class(kind: TaskKind, name: str, operator: str) -> KernelClass:
    if kind is TaskKind.COLLECTIVE:
        return "collective"
    return kernel_class(name, operator) if kind is TaskKind.KERNEL else "copy"


def _events(trace: Trace) -> dict[tuple[str, float, str], int]:
    events = trace.events
    return {
        (trace.lanes[events.lane[event]].name, float(events.start_us[event]), trace.name_of(event)): event
        for event in events.of(EventKind.KERNEL, EventKind.COPY, EventKind.MEMSET).tolist()
    }


def _launch(details: Mapping[str, Any]) -> Launch | None:
    grid, block = details.get("grid"), details.get("block")
    registers, shared = details.get("registers per thread"), details.get("shared memory", 0)
    sizes = [one for one in (grid, block) if isinstance(one, list)]
    numbers = [cast("list[Any]", one) for one in sizes]
    if len(numbers) != 2 or not all(type(n) is int and n > 0 for one in numbers for n in one):
        return None
    if type(registers) is not int or type(shared) is not int:
        return None
    return Launch(
        blocks=prod(numbers[0]),
        threads=prod(numbers[1]),
        registers=max(registers, 1),
        shared_bytes=max(shared, 0),
    )
