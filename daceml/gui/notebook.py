"""What notebooks show of runs and explorations: the page, in a frame of its own."""

from __future__ import annotations

from daceml.exploration.results import Exploration
from daceml.gui.page import framed
from daceml.gui.timeline_view import timeline_view
from daceml.gui.variants_view import variants_view
from daceml.simulation import Prediction, Schedule


def schedule_html(schedule: Schedule) -> str:
    """The timeline of a simulation."""
    return framed(timeline_view(schedule, recorded=False))


def prediction_html(prediction: Prediction) -> str:
    """The timeline of a run as it was and as it would be."""
    return framed(timeline_view(prediction.baseline, [prediction]))


def exploration_html(exploration: Exploration) -> str:
    """The variants as a plot and a table."""
    return framed(variants_view(exploration), height=720)
