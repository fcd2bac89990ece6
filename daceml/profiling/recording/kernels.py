"""Kernels of our own compiled modules in a trace: which ran when, and the ONNX nodes and modules behind them.

torch's profiler sees one operator for each call of a program, and inside it those operators of torch's that
the program calls. Where the program was compiled with ranges, each step is one of them. Else the program's
own clocks know how long each step took. Steps follow each other without a pause, so their times are laid end
to end from the moment when the program began; where that cuts an operator that the profiler saw inside the
call, by the microsecond in which two clocks differ, the step ends at the operator's edge.
"""

from __future__ import annotations

import sys
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard

from daceml.profiling.kernel_names import CALLS, PREFIX
from daceml.runtime.records.manifest import Manifest
from daceml.toolchain.range_names import PREFIX as RANGE

if TYPE_CHECKING:
    from torch import nn

    from daceml.module.module import DaceModule
    from daceml.runtime.call_log import LoggedCall

Event = dict[str, Any]


def programs_loaded() -> bool:
    """Whether this process has compiled programs at all; loads nothing."""
    launcher = sys.modules.get("daceml.runtime.launcher")
    return launcher is not None and bool(launcher.folders())


def owners(layers: Mapping[nn.Module, Sequence[str]]) -> dict[int, tuple[str, str]]:
    """Number of a program -> name of the compiled module that it belongs to, and "forward" or "backward".

    Args:
        layers: as `layer_names` gives them: the outermost module first.
    """
    found: dict[int, tuple[str, str]] = {}
    for place, (module, names) in enumerate(layers.items()):
        if not _is_ours(module):
            continue
        for variant in module.session.variants:
            path = "" if place == 0 else names[0]
            found |= dict.fromkeys(variant.program.numbers, (path, "forward"))
            behind = variant.backward.programs if variant.backward is not None else ()
            found |= {number: (path, "backward") for program in behind for number in program.numbers}
    return found


def _is_ours(module: Any) -> TypeGuard[DaceModule]:
    home = sys.modules.get("daceml.module.module")
    return home is not None and isinstance(module, home.DaceModule)


def program_records(
    folders: Mapping[int, Path], owned: Mapping[int, tuple[str, str]], root: str
) -> dict[int, dict[str, Any]]:
    """Number of a program -> what it is made of, as plain values.

    Args:
        folders: where each program is stored.
        owned: as `owners` gives it; of other programs, modules are named as the program knows them.
        root: name of the outermost module.
    """
    records: dict[int, dict[str, Any]] = {}
    for number, folder in folders.items():
        if not (folder / "manifest.json").is_file():
            continue  # it lay outside the cache, and is gone
        path, part = owned.get(number, ("", ""))
        steps = [
            {
                "name": f"{PREFIX}{step.label} {step.kernel}".rstrip(),
                "kind": step.kind,
                "kernel": step.kernel or None,
                "function": step.launch.function if step.launch is not None else None,
                "layers": _layers(step, path, root),
                "flops": step.flops,
                "bytes": step.unique_bytes,
                "nodes": [
                    {"operator": n.operator, "name": n.onnx_name, "layer": _joined(path, n.module_path, root)}
                    for n in step.nodes
                ],
            }
            for step in Manifest.load(folder).steps
        ]
        records[number] = {
            "number": number, "module": (path or root) if number in owned else None, "part": part or None,
            "steps": steps,
        }  # fmt: skip
    return records


def _layers(step: Any, path: str, root: str) -> list[str]:
    inner = [n.module_path for n in step.nodes] or [p for p in step.module_path.split(", ") if p]
    return list(dict.fromkeys(_joined(path, module, root) for module in inner))


def _joined(path: str, module: str, root: str) -> str:
    return ".".join(filter(None, (path, module))) or root


def kernel_events(
    events: Sequence[Event],
    calls: Iterable[LoggedCall],
    programs: Mapping[int, Mapping[str, Any]],
    base_ns: int,
) -> tuple[list[Event], int]:
    """An event for every step of every call that the profiler saw; pure.

    Args:
        events: of the trace.
        calls: what the launcher recorded meanwhile.
        programs: as `program_records` gives them.
        base_ns: of the trace: its time zero since 1970.
    Returns:
        the events, and the number of calls that the profiler did not see, or whose program is gone.
    """
    lanes = _Lanes(events)
    found: list[Event] = []
    missing = 0
    for call in calls:
        first_us, last_us = (call.start_ns - base_ns) / 1e3, (call.end_ns - base_ns) / 1e3
        operator = lanes.call_around(call.thread, (first_us + last_us) / 2)
        record = programs.get(call.program)
        if operator is None or record is None or len(record["steps"]) != len(call.step_us):
            missing += 1
            continue
        spans = [_span(event) for event in lanes.within(operator) if event["name"].startswith(RANGE)]
        if len(spans) != len(call.step_us):
            spans = placed_steps(call.step_us, first_us, _span(operator), lanes.inside(operator))
        for index, ((start, end), step) in enumerate(zip(spans, record["steps"], strict=True)):
            details = {"program": call.program, "step": index, "kind": step["kind"], "kernel": step["kernel"]}
            details |= {"layers": step["layers"], "nodes": [node["name"] for node in step["nodes"]]}
            found.append(
                {
                    "ph": "X", "cat": "cpu_op", "name": step["name"],
                    "pid": operator["pid"], "tid": operator["tid"],
                    "ts": round(start, 3), "dur": round(end - start, 3),
                    "args": details,
                }
            )  # fmt: skip
    return found, missing


def placed_steps(
    step_us: Sequence[float],
    first_us: float,
    call: tuple[float, float],
    inside: Sequence[tuple[float, float]],
) -> list[tuple[float, float]]:
    """Start and end of each step; pure.

    Args:
        first_us: when the program's own code began.
        call: start and end of the operator around all of them.
        inside: spans of operators within it, in order, none within another.
    """
    # the operator holds all steps: where the clocks differ by more, the program is moved as a whole
    first = max(min(first_us, call[1] - sum(step_us)), call[0])
    bounds = [min(bound, call[1]) for bound in accumulate(step_us, initial=first)]
    for start, end in inside:
        bounds = [
            bound if not start < bound < end else (start if bound - start < end - bound else end)
            for bound in bounds
        ]
    return list(pairwise(bounds))


def _span(event: Event) -> tuple[float, float]:
    return event["ts"], event["ts"] + event["dur"]


class _Lanes:
    """The operators of each thread, by start; of those that start together, the outer one first."""

    def __init__(self, events: Sequence[Event]) -> None:
        self.operators: dict[int, list[Event]] = {}
        for event in events:
            if event.get("ph") == "X" and event.get("cat") == "cpu_op" and "dur" in event:
                self.operators.setdefault(event["tid"], []).append(event)
        for lane in self.operators.values():
            lane.sort(key=lambda e: (e["ts"], -e["dur"]))
        self.starts = {tid: [e["ts"] for e in lane] for tid, lane in self.operators.items()}
        calls = {tid: [e for e in lane if e["name"] in CALLS] for tid, lane in self.operators.items()}
        self.calls = {tid: (lane, [e["ts"] for e in lane]) for tid, lane in calls.items()}

    def call_around(self, thread: int, time_us: float) -> Event | None:
        """The call of a program that a thread was in."""
        lane, starts = self.calls.get(thread, ([], []))
        place = bisect_right(starts, time_us) - 1
        return lane[place] if place >= 0 and time_us <= _span(lane[place])[1] else None

    def within(self, call: Event) -> list[Event]:
        """The operators within a call."""
        lane, starts = self.operators[call["tid"]], self.starts[call["tid"]]
        first, last = _span(call)
        events = lane[bisect_right(starts, first) - 1 : bisect_right(starts, last)]
        return [event for event in events if event is not call and event["ts"] >= first]

    def inside(self, call: Event) -> list[tuple[float, float]]:
        """Spans of the outermost operators within a call."""
        found: list[tuple[float, float]] = []
        for start, end in map(_span, self.within(call)):
            if not found or start >= found[-1][1]:
                found.append((start, end))
        return found
