"""HTML that notebooks show: parts below the reports and the page ask for it by the kind of the object."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Literal

Kind = Literal["module", "exploration", "schedule", "what-if"]

# Kind of an object -> the function that makes its HTML, imported when a notebook asks.
MAKERS: dict[Kind, str] = {
    "module": "daceml.report.explanation.module_html:module_html",
    "exploration": "daceml.gui.notebook:exploration_html",
    "schedule": "daceml.gui.notebook:schedule_html",
    "what-if": "daceml.gui.notebook:prediction_html",
}


def html_of(kind: Kind, value: Any) -> str:
    """Return what a notebook shows of a value."""
    module, _, function = MAKERS[kind].partition(":")
    made: str = getattr(import_module(module), function)(value)
    return made
