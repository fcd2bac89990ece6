"""Which layer a kernel of a compiled program belongs to: its launch only says which program it was."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence

from daceml.profiling.kernel_names import (
    CALLS,
    PREFIX,
    KernelOrigin,
    KernelProgram,
    common_layer,
    function_of,
    programs_of,
)
from daceml.profiling.trace import EventKind
from daceml.simulation.building.draft import Draft
from daceml.simulation.graph import NOTHING


def attribute_compiled(draft: Draft) -> None:
    """Give kernels of compiled programs the module that holds all they compute, where the trace knows it.

    A call launches the kernels of its program in order. Where that is not what the trace shows, or several
    programs have the same kernels, a kernel belongs to the module that holds all that it may compute.
    """
    programs = programs_of(draft.trace)
    if not programs:
        return
    calls = _Calls(draft)
    launched: dict[int, list[int]] = {}
    for number in draft.device_rows():
        if function_of(draft.rows[number].name) is not None:
            launched.setdefault(calls.around(number), []).append(number)
    for call, numbers in launched.items():
        numbers.sort(key=lambda n: (_given_us(draft, n), draft.rows[n].start_us))
        functions = [function_of(draft.rows[n].name) or "" for n in numbers]
        layers = layers_of(functions, programs, calls.program.get(call))
        for number, layer in zip(numbers, layers, strict=True):
            draft.rows[number].layer = layer or draft.rows[number].layer


def layers_of(
    functions: Sequence[str], programs: Sequence[KernelProgram], number: int | None = None
) -> list[str]:
    """The layer of each kernel that a call launched, in order; "" where nobody knows it.

    Args:
        number: of the program that was called, where that is known.
    """
    named = [program for program in programs if program.number == number] if number is not None else []
    candidates = named or programs
    same = [p for p in candidates if [kernel.function for kernel in p.kernels] == list(functions)]
    if same:
        at_place = zip(*(program.kernels for program in same), strict=True)
        return [common_layer(_each_layer(kernels)) for kernels in at_place]
    return [
        common_layer(_each_layer(k for p in candidates for k in p.kernels if k.function == function))
        for function in functions
    ]


def _each_layer(kernels: Iterable[KernelOrigin]) -> list[str]:
    return [layer for kernel in kernels for layer in kernel.layers]


def _given_us(draft: Draft, number: int) -> float:
    call = draft.rows[number].launched_by
    return draft.rows[call].begin_us if call != NOTHING else draft.rows[number].start_us


class _Calls:
    """The calls of compiled programs, by thread.

    Attributes:
        program: call -> the number of the program that it ran, where the recorder marked its steps.
    """

    def __init__(self, draft: Draft) -> None:
        self.draft, self.events = draft, draft.trace.events
        self.of_lane: dict[int, tuple[list[float], list[int]]] = {}
        self.program: dict[int, int] = {}
        marked: list[int] = []
        for event in self.events.of(EventKind.OPERATOR).tolist():
            name = draft.trace.name_of(event)
            if name in CALLS:
                starts, calls = self.of_lane.setdefault(int(self.events.lane[event]), ([], []))
                starts.append(float(self.events.start_us[event]))
                calls.append(event)
            elif name.startswith(PREFIX):
                marked.append(event)
        for event in marked:
            number = self.events.details[event].get("program")
            if type(number) is int:
                self.program[self._at(event)] = number

    def around(self, number: int) -> int:
        """The call (an event) that launched the work of a row, NOTHING if no call did."""
        launch = self.draft.rows[number].launched_by
        event = self.draft.rows[launch].event if launch != NOTHING else NOTHING
        return self._at(event) if event != NOTHING else NOTHING

    def _at(self, event: int) -> int:
        starts, calls = self.of_lane.get(int(self.events.lane[event]), ([], []))
        place = bisect_right(starts, float(self.events.start_us[event])) - 1
        if place < 0 or self.events.end_us[calls[place]] < self.events.start_us[event]:
            return NOTHING
        return calls[place]
