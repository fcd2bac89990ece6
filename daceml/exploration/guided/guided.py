"""A guided optimisation: a model, the passes chosen so far, what each further one would bring, the way back.

Nothing is compiled until something is measured: a choice is lowered, and its steps are predicted from their
costs beside what was measured on this machine before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from threading import RLock
from typing import Any, Literal

import torch
from torch import nn

from daceml.errors import DacemlError, MoveError, first_line
from daceml.exploration.guided.call_inputs import named_tensors, resized
from daceml.exploration.guided.pass_catalogue import Catalogue, Places
from daceml.exploration.guided.pass_effect import Effect, places_of, refusals_of
from daceml.exploration.guided.program_graph import Graph, graph_of
from daceml.exploration.step_database import Library
from daceml.module.module import eager_module
from daceml.sdfg.passes import PassRecord
from daceml.transformations.recipe import Recipe
from daceml.tuning.call_trials import CallTrials
from daceml.tuning.model_call import Lowered, Subject
from daceml.tuning.step_times import Likely, ProgramTime, StepTimes
from daceml.tuning.variant import Variant

Start = Literal["standard", "nothing"]

_NUMBERS = count()


@dataclass(frozen=True, kw_only=True)
class Choice:
    """Passes that are applied, and what was done last to get there."""

    title: str
    chosen: Mapping[str, Places]


@dataclass(frozen=True, kw_only=True, eq=False)
class Program:
    """A choice, lowered.

    Attributes:
        lowered: without its networks, which are large.
        graph: its steps, and what they hand each other.
        steps: what each step likely takes, forward then backward.
        time: of all of them.
        records: name of a pass -> what it did and refused, in forward and backward pass.
        number: that no other program of this process has.
    """

    lowered: Lowered
    graph: Graph
    steps: tuple[Likely, ...]
    time: ProgramTime
    records: Mapping[str, tuple[PassRecord, ...]]
    number: int = field(default_factory=_NUMBERS.__next__)


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What a program took: a call, and each of its steps.

    Attributes:
        predicted: of its steps, before any of this program was measured.
    """

    call_us: float
    steps_us: tuple[float, ...]
    predicted: ProgramTime

    @property
    def as_predicted(self) -> bool:
        """Whether the steps took a time within the interval that was predicted."""
        return self.predicted.low_us <= sum(self.steps_us) <= self.predicted.high_us


@dataclass(eq=False)
class _Sizes:
    """A model with inputs of certain sizes, and what is known of its programs.

    Attributes:
        refused: recipes that give no program -> why.
    """

    subject: Subject
    programs: dict[str, Program] = field(default_factory=dict[str, Program])
    refused: dict[str, str] = field(default_factory=dict[str, str])
    effects: dict[tuple[str, str], Effect] = field(default_factory=dict[tuple[str, str], Effect])
    measured: dict[str, Measured] = field(default_factory=dict[str, Measured])


class _RefusedBeforeError(Exception):
    """A choice that gives no program, which is known; says why."""


class Guided:
    """A guided optimisation of one call of a module; may be used from several threads.

    Args:
        args, kwargs: of the call; tensors are read and not changed.
        training: whether a call is a forward and a backward pass.
        start: what is applied at first: the standard recipe, or nothing.
        recipe: where to start instead.
        offered: passes that may be applied besides the standard ones.
        times: of steps on this machine; None: those in the cache's database.
    Raises:
        DacemlError: the module cannot be captured or lowered, or does not lie in the processor's memory.
    """

    def __init__(
        self,
        module: nn.Module,
        args: tuple[Any, ...],
        kwargs: dict[str, Any] | None = None,
        *,
        training: bool = False,
        start: Start = "standard",
        recipe: Recipe | None = None,
        offered: Recipe | None = None,
        times: StepTimes | None = None,
    ) -> None:
        module = eager_module(module)
        self.module, self.training = module, training
        self._lock = RLock()
        self.catalogue = Catalogue("training" if training else "inference", recipe, offered)
        if times is None:
            with Library.of_this_machine() as library:
                times = library.times()
        self.times, self._trials = times, CallTrials(times=times)
        self._sizes = _Sizes(Subject(module, args, dict(kwargs or {}), training=training))
        self._start = self._sizes.subject
        self._start.require_processor()
        nothing = start == "nothing" and recipe is None
        chosen = self.catalogue.everything(() if nothing else self.catalogue.first)
        self.history = [Choice(title="start", chosen=chosen)]
        self.place = 0
        self.program()

    @property
    def chosen(self) -> Mapping[str, Places]:
        """Passes that are applied -> where."""
        return self.history[self.place].chosen

    @property
    def recipe(self) -> Recipe:
        """What is applied, as a recipe for `daceml.compile`."""
        return self.catalogue.recipe(self.chosen)

    @property
    def inputs(self) -> tuple[tuple[str, torch.Tensor], ...]:
        """Tensors of the call, by the names of forward's arguments."""
        subject = self._sizes.subject
        return tuple(named_tensors(subject.module, subject.args, subject.kwargs))

    def program(self) -> Program:
        """The program of what is applied."""
        with self._lock:
            return self._program(self.chosen)

    def measured(self) -> Measured | None:
        """What the program took; None where it was not measured."""
        return self._sizes.measured.get(self._key(self.chosen))

    @property
    def held(self) -> RLock:
        """Nothing changes while somebody has it."""
        return self._lock

    def first_program(self) -> Program:
        """The program of what was applied at first.

        Raises:
            MoveError: it cannot be made for these sizes.
        """
        with self._lock:
            self._check("the start", self.history[0].chosen)
            return self._program(self.history[0].chosen)

    def effect(self, name: str) -> Effect:
        """What one pass would bring, or has brought.

        Raises:
            MoveError: there is no such pass.
        """
        with self._lock:
            self._known(name)
            key = self._key(self.chosen), name
            if key not in self._sizes.effects:
                self._sizes.effects[key] = self._effect(name)
            return self._sizes.effects[key]

    def known_effect(self, name: str) -> Effect | None:
        """The same, if somebody has asked before; does not wait."""
        return self._sizes.effects.get((self._key(self.chosen), name))

    def apply(self, name: str, place: str | None = None) -> None:
        """Apply a pass everywhere, or at one place besides those where it is applied already.

        Args:
            place: an array.
        Raises:
            MoveError: there is no such pass, it does not apply there, or the result cannot be lowered.
        """
        with self._lock:
            self._known(name)
            step, before = self.catalogue.steps[name], self.chosen.get(name, ())
            if place is None:
                if name in self.chosen and before is None:
                    raise MoveError(f"{name} is applied already", fix="leave it out, or take another pass")
                self._go(f"{name} everywhere", {**self.chosen, name: None})
                return
            if not step.takes_places:
                raise MoveError(
                    f"{name} cannot be told its places",
                    why="it does not ask for each place whether it may change it",
                    fix="apply it everywhere",
                )
            if before is None or place in before:
                raise MoveError(f"{name} is applied at {place} already", fix="take another place")
            chosen = {**self.chosen, name: (*before, place)}
            self._check(name, chosen)
            if not any(place in record.places for record in self._program(chosen).records.get(name, ())):
                raise MoveError(
                    f"{name} does not apply at {place}",
                    why=self._reason(name, place),
                    fix="take another place",
                )
            self._go(f"{name} at {place}", chosen)

    def leave_out(self, name: str) -> None:
        """Take a pass back, wherever it is applied.

        Raises:
            MoveError: it is not applied, or others cannot do without it.
        """
        with self._lock:
            self._known(name)
            if name not in self.chosen:
                raise MoveError(f"{name} is not applied", fix="apply it, or take another pass")
            self._go(f"without {name}", {known: at for known, at in self.chosen.items() if known != name})

    def undo(self) -> None:
        """Go back to the choice before.

        Raises:
            MoveError: this is the first one.
        """
        with self._lock:
            if self.place == 0:
                raise MoveError("there is nothing to undo", fix="apply something first")
            self._check("undo", self.history[self.place - 1].chosen)
            self.place -= 1

    def redo(self) -> None:
        """Go on to the choice that was undone.

        Raises:
            MoveError: nothing was undone, or something else was done since.
        """
        with self._lock:
            if self.place == len(self.history) - 1:
                raise MoveError("there is nothing to redo", fix="undo something first")
            self._check("redo", self.history[self.place + 1].chosen)
            self.place += 1

    def resize(self, shapes: Mapping[str, Sequence[int]]) -> None:
        """Give inputs other sizes; what is applied and the history stay.

        Args:
            shapes: name of an input -> its new shape; others stay as they are.
        Raises:
            MoveError: no input has the name, a size is none, or the model does not take such inputs.
        """
        with self._lock:
            sizes = _Sizes(resized(self._sizes.subject, shapes, start=self._start))
            try:
                sizes.programs[self._key(self.chosen)] = self._lower(self.chosen, sizes)
            except Exception as error:  # whatever the model, a pass or an operator refuses
                raise MoveError(
                    "the model does not take inputs of these sizes", why=_line(error), fix="give other sizes"
                ) from error
            self._sizes = sizes

    def measure(self) -> Measured:
        """Compile what is applied, run it, and learn what its steps take.

        Raises:
            DacemlError: the compiler refuses.
        """
        with self._lock:
            key = self._key(self.chosen)
            if key not in self._sizes.measured:
                predicted = self._program(self.chosen).time
                lowered = self._sizes.subject.lower(self._variant(self.chosen))
                run = self._sizes.subject.compile(lowered)
                call_us = run.call_us()
                steps_us = tuple(run.steps_us(call_us))
                self._sizes.measured[key] = Measured(call_us=call_us, steps_us=steps_us, predicted=predicted)
                if len(steps_us) == len(lowered.facts):
                    with Library.of_this_machine() as library:
                        library.add(lowered.facts, steps_us)
                    self.times.learn(lowered.facts, steps_us)
                    self._sizes.programs.clear()
                    self._sizes.effects.clear()
            return self._sizes.measured[key]

    def _go(self, title: str, chosen: Mapping[str, Places]) -> None:
        self._check(title, chosen)
        self.history[self.place + 1 :] = [Choice(title=title, chosen=chosen)]
        self.place += 1

    def _check(self, title: str, chosen: Mapping[str, Places]) -> None:
        try:
            self._program(chosen)
        except Exception as error:  # whatever a pass or an operator refuses
            raise MoveError(f"{title}: cannot be done", why=_line(error), fix="make another move") from error

    def _known(self, name: str) -> None:
        if name not in self.catalogue.steps:
            raise MoveError(
                f"there is no pass {name!r}", why="there are " + ", ".join(self.catalogue.steps),
                fix="name one of them",
            )  # fmt: skip

    def _effect(self, name: str) -> Effect:
        here, applied = self._program(self.chosen), self.chosen.get(name, ()) is None
        records = here.records.get(name, ())
        idle = not any(record.places or record.applied for record in records)
        if applied and idle and self.catalogue.steps[name].takes_places:
            return Effect(refused=refusals_of(records))  # nothing to do, so nothing changes without it
        if applied:
            other = {known: at for known, at in self.chosen.items() if known != name}
        else:
            other = {**self.chosen, name: None}
        try:
            there = self._program(other)
        except Exception as error:  # whatever a pass or an operator refuses
            return Effect(places=places_of(records), refused=refusals_of(records), why=_line(error))
        ahead, behind = (here, there) if applied else (there, here)  # with it everywhere, and without
        records = ahead.records.get(name, ())
        return Effect(
            time_us=ahead.time.us - behind.time.us,
            moved_bytes=ahead.lowered.moved_bytes - behind.lowered.moved_bytes,
            memory_bytes=ahead.lowered.memory_bytes - behind.lowered.memory_bytes,
            steps=len(ahead.steps) - len(behind.steps),
            places=places_of(records),
            refused=refusals_of(records),
            changes=here.lowered.identity != there.lowered.identity,
        )

    def _reason(self, name: str, place: str) -> str:
        everywhere = self._program({**self.chosen, name: None}).records.get(name, ())
        found = [why for subject, why, _, _ in refusals_of(everywhere) if subject == place]
        return found[0] if found else "the pass finds nothing there"

    def _program(self, chosen: Mapping[str, Places]) -> Program:
        key, known = self._key(chosen), self._sizes
        if key in known.refused:
            raise _RefusedBeforeError(known.refused[key])
        if key not in known.programs:
            try:
                known.programs[key] = self._lower(chosen, known)
            except (MemoryError, OSError):  # may be otherwise the next time
                raise
            except Exception as error:  # whatever a pass or an operator refuses
                known.refused[key] = _line(error)
                raise
        return known.programs[key]

    def _lower(self, chosen: Mapping[str, Places], sizes: _Sizes) -> Program:
        lowered = sizes.subject.lower(self._variant(chosen))
        records: dict[str, list[PassRecord]] = {}
        for plan in lowered.plans:
            for record in plan.network.passes:
                records.setdefault(record.by, []).append(record)
        graph = graph_of(lowered)
        self._trials.learn(lowered)
        lowered.making.made, lowered.plans = [], ()
        return Program(
            lowered=lowered,
            graph=graph,
            steps=tuple(map(self.times.step, lowered.facts)),
            time=self.times.program(lowered.facts, 0.0),
            records={name: tuple(found) for name, found in records.items()},
        )

    def _variant(self, chosen: Mapping[str, Places]) -> Variant:
        return Variant(recipe=self._key(chosen))

    def _key(self, chosen: Mapping[str, Places]) -> str:
        return self.catalogue.recipe(chosen).to_json()


def _line(error: Exception) -> str:
    if isinstance(error, DacemlError):
        return error.what + (f": {error.why}" if error.why else "")
    return first_line(error)
