"""The three pages: a model that is guided, a recorded run with questions, an exploration."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from threading import Event, Lock, Thread
from typing import Any

from daceml.errors import PageError, WhatIfError
from daceml.exploration.guided.guided import Guided
from daceml.exploration.results import Exploration
from daceml.gui.model_view import model_view
from daceml.gui.server import Told
from daceml.gui.timeline_view import timeline_view
from daceml.gui.variants_view import variants_view
from daceml.simulation import Schedule, TaskGraph, predict_each, simulate
from daceml.simulation.whatif.whatif_result import Prediction

log = logging.getLogger(__name__)

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
            "apply": lambda told: self._moved(guided.apply, _text(told, "pass"), _place(told)),
            "leave_out": lambda told: self._moved(guided.leave_out, _text(told, "pass")),
            "undo": lambda _: self._moved(guided.undo),
            "redo": lambda _: self._moved(guided.redo),
            "sizes": lambda told: self._moved(guided.resize, _shapes(told)),
            "measure": lambda _: self._moved(guided.measure),
            "effect": lambda told: self._asked(_text(told, "pass")),
        }
        self._whole: tuple[str, ...] = ()  # passes of which somebody wants to see everything
        self._changed, self._ahead, self._closed = Event(), ahead, False
        self._starting = Lock()
        self._worker = Thread(target=self._look_ahead, name="daceml-effects", daemon=True)

    def view(self, known: str = "") -> Told:
        """The current choice; the first look begins to find out what moves would bring."""
        with self._starting:
            if self._ahead and self._worker.ident is None:
                self._worker.start()
        return model_view(
            self.guided, title=self.title, target=self.target, looking=self._ahead, known=known,
            whole=self._whole,
        )  # fmt: skip

    def report(self) -> Told:
        """The same for whoever cannot ask for more: what every move would bring, and all that it refuses."""
        for name in self.guided.catalogue.steps:
            self.guided.effect(name)
        return model_view(
            self.guided, title=self.title, target=self.target, whole=tuple(self.guided.catalogue.steps)
        )

    def close(self) -> None:
        """End what runs beside the page, after the move that it looks at."""
        self._closed = True
        self._changed.set()
        with self._starting:
            begun = self._worker.ident is not None
        if begun:
            self._worker.join()

    def _moved(self, move: Callable[..., Any], *given: Any) -> Told:
        move(*given)
        self._changed.set()
        return self.view()

    def _asked(self, name: str) -> Told:
        self.guided.effect(name)
        self._whole = (*self._whole, name)
        return self.view()

    def _look_ahead(self) -> None:
        while True:
            self._changed.clear()  # before looking: what is set from here on is heard
            if self._closed:
                return
            unknown = [name for name in self.guided.catalogue.steps if self.guided.known_effect(name) is None]
            for name in unknown:
                if self._closed or self._changed.is_set():
                    break
                try:
                    self.guided.effect(name)
                except Exception:  # the others are still wanted
                    log.exception("what %s would bring is not known", name)
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
            "ask": lambda told: self._asked(_text(told, "question")),
            "forget": lambda _: self._forgotten(),
        }

    def view(self, known: str = "") -> Told:
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

    def view(self, known: str = "") -> Told:
        """All variants."""
        return variants_view(self.exploration)


def _text(told: Told, name: str) -> str:
    if not isinstance(told.get(name), str):
        raise PageError(f"the request does not say which {name}", fix=f'send {{"{name}": "…"}}')
    return told[name]


def _place(told: Told) -> str | None:
    return None if told.get("place") is None else _text(told, "place")


def _shapes(told: Told) -> dict[str, list[int]]:
    shapes = told.get("shapes")
    if not isinstance(shapes, dict) or not all(isinstance(shape, list) for shape in shapes.values()):
        raise PageError("the request has no shapes", fix='send {"shapes": {"x": [8, 16]}}')
    return shapes
