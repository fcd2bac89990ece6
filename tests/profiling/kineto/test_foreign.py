"""Chrome traces of other programs."""

from __future__ import annotations

from typing import Any

from benchmarks.trace_examples import as_bytes
from daceml.profiling.kineto import trace_of
from daceml.profiling.trace import EventKind
from tests.support.golden import golden


def event(phase: str, name: str, at: float, thread: int = 1, **more: Any) -> dict[str, Any]:
    return {"ph": phase, "name": name, "ts": at, "pid": 1, "tid": thread, **more}


def test_beginnings_and_ends_are_joined_on_each_thread():
    events = [
        event("E", "", 30),
        event("B", "outer", 10, args={"size": 3}),
        event("B", "other thread", 11, thread=2),
        event("B", "inner", 12),
        event("E", "", 20, args={"result": 4}),
        event("E", "", 40, thread=2),
    ]
    recorded = trace_of(as_bytes(events), "run.json")
    spans = {recorded.name_of(i): (recorded.events.start_us[i], recorded.events.end_us[i]) for i in range(3)}
    assert spans == {"outer": (0, 20), "inner": (2, 10), "other thread": (1, 30)}
    assert recorded.events.details[2] == {"result": 4}
    assert recorded.events.details[0] == {"size": 3}


def test_halves_alone_are_left_out():
    events = [
        event("X", "all", 0, dur=9),
        event("E", "", 1),
        event("B", "open", 2),
        event("B", "", 3, ts="x"),
    ]
    recorded = trace_of(as_bytes(events), "run.json")
    assert len(recorded.events) == 1
    assert recorded.notes == (golden(), golden())


def test_a_file_without_any_known_category_tells_of_threads():
    recorded = trace_of(as_bytes([event("X", "read", 0, dur=3, cat="disk"), event("X", "f", 1, dur=1)]), "a")
    assert recorded.events.kind.tolist() == [EventKind.OPERATOR] * 2
    assert recorded.notes == (golden(),)
    assert "CPU" in recorded.notes[0] and "2" in recorded.notes[0]


def test_beside_known_categories_an_unknown_one_may_be_work_of_a_device():
    events = [event("X", "aten::mm", 0, dur=3, cat="cpu_op"), event("X", "f", 1, dur=1, cat="new_device")]
    recorded = trace_of(as_bytes(events), "run.json")
    assert len(recorded.events) == 1
    assert recorded.notes == (golden(),)
    assert "'new_device'" in recorded.notes[0] and "1" in recorded.notes[0]


def test_what_the_profiler_says_of_itself_is_no_work_and_needs_no_note():
    events = [
        event("X", "aten::mm", 0, dur=3, cat="cpu_op"),
        event("X", "Activity Buffer Request", 1, dur=1, cat="overhead"),
        event("X", "PyTorch Profiler (0)", 0, dur=9, cat="Trace"),
    ]
    recorded = trace_of(as_bytes(events), "run.json")
    assert (len(recorded.events), recorded.notes) == (1, ())
