"""The three pages: a model that is guided, a recorded run with questions, an exploration."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from threading import Event, Thread
from typing import Any

from daceml.errors import DacemlError, WhatIfError
from daceml.exploration.exploration import Exploration
from daceml.gui.guided import Guided
from daceml.gui.model_view import model_view
from daceml.gui.server import Told
from daceml.gui.timeline_view import timeline_view
from daceml.gui.variants_view import variants_view
from daceml.simulation import Schedule, TaskGraph, predict_each, simulate
from daceml.simulation.prediction import Prediction

_BREAK_S = 0.02  # in which whoever clicks gets his turn


class ModelPage:
    """A guided optimisation. What moves would bring is found out beside it, one move after the other.

    Args:
        target: how a command line names the model; "" where none does.
        ahead: whether to find out what moves would bring before anybody asks.
    """

    def __init__(self, guided: Guided, *, title: str, target: str = "", ahead: bool = True) -> None:
        self.guided, self.title, self.target = guided, title, target
        self.actions: Mapping[str, Callable[[Told], Told]] = {
            "apply": lambda told: self._moved(guided.apply, str(told["pass"]), _optional(told.get("place"))),
            "leave_out": lambda told: self._moved(guided.leave_out, str(told["pass"])),
            "undo": lambda _: self._moved(guided.undo),
            "redo": lambda _: self._moved(guided.redo),
            "sizes": lambda told: self._moved(guided.resize, _shapes(told["shapes"])),
            "measure": lambda _: self._moved(guided.measure),
            "effect": lambda told: self._asked(str(told["pass"])),
        }
        self._changed, self._ahead, self._closed = Event(), ahead, False
        self._worker = Thread(target=self._look_ahead, name="daceml-effects", daemon=True)

    def view(self) -> Told:
        """The current choice; the first look begins to find out what moves would bring."""
        if self._ahead and self._worker.ident is None:
            self._worker.start()
        return model_view(self.guided, title=self.title, target=self.target, looking=self._ahead)

    def close(self) -> None:
        """End what runs beside the page, after the move that it looks at."""
        self._closed = True
        self._changed.set()
        if self._worker.ident is not None:
            self._worker.join()

    def _moved(self, move: Callable[..., Any], *given: Any) -> Told:
        move(*given)
        self._changed.set()
        return self.view()

    def _asked(self, name: str) -> Told:
        self.guided.effect(name)
        return self.view()

    def _look_ahead(self) -> None:
        while not self._closed:
            self._changed.clear()
            unknown = [name for name in self.guided.catalogue.steps if self.guided.known_effect(name) is None]
            for name in unknown:
                if self._closed or self._changed.is_set():
                    break
                with suppress(DacemlError):
                    self.guided.effect(name)
                time.sleep(_BREAK_S)
            else:
                self._changed.wait()


class TracePage:
    """A recorded run: measured, replayed, and predicted for questions."""

    def __init__(self, graph: TaskGraph, *, ask: Callable[[Sequence[str]], Sequence[Any]]) -> None:
        """
        Args:
            ask: makes optimisations of the words of a question, such as --amp.
        """
        self.title, self.graph, self.ask = graph.source, graph, ask
        self.replayed: Schedule = simulate(graph)
        self.predictions: list[Prediction] = []
        self.refusals: list[str] = []
        self.actions: Mapping[str, Callable[[Told], Told]] = {
            "ask": lambda told: self._asked(str(told["question"])),
            "forget": lambda _: self._forgotten(),
        }

    def view(self) -> Told:
        """All lanes."""
        return timeline_view(self.replayed, self.predictions, self.refusals)

    def _asked(self, question: str) -> Told:
        found = self.ask(question.split())
        if not found:
            raise WhatIfError("nothing is asked", fix="write for example --amp, or --ddp 4x8")
        predictions, refusals = predict_each(self.graph, found, baseline=self.replayed)
        self.predictions += predictions
        self.refusals = [f"{one.title}: {one.reason}" for one in refusals]
        return self.view()

    def _forgotten(self) -> Told:
        self.predictions, self.refusals = [], []
        return self.view()


class VariantsPage:
    """An exploration; there is nothing to do but look."""

    actions: Mapping[str, Callable[[Told], Told]] = {}

    def __init__(self, exploration: Exploration) -> None:
        self.title, self.exploration = exploration.model, exploration

    def view(self) -> Told:
        """All variants."""
        return variants_view(self.exploration)


def _optional(place: Any) -> str | None:
    return None if place is None else str(place)


def _shapes(told: Mapping[str, Sequence[int]]) -> dict[str, list[int]]:
    return {str(name): list(shape) for name, shape in told.items()}
