"""Errors of recorded runs and of task graphs."""

from __future__ import annotations

from daceml.errors.base import DacemlError


class TraceFileError(DacemlError):
    """A file that is no profiler's trace, or is damaged."""

    code = "DML601"


class TraceContentError(DacemlError):
    """A trace that lacks what a question needs: no device work, launches that were not recorded."""

    code = "DML602"


class RecordingError(DacemlError):
    """A run that cannot be recorded: too few steps, or something else is recording already."""

    code = "DML603"


class TaskGraphError(DacemlError):
    """A task graph that means nothing: an index out of range, a duration below zero."""

    code = "DML611"


class CyclicGraphError(TaskGraphError):
    """Tasks that wait for each other."""

    code = "DML612"


class WhatIfError(DacemlError):
    """An optimisation that cannot be applied to this graph: nothing it would change, or a figure it needs."""

    code = "DML613"


class MissingFactError(WhatIfError):
    """A what-if question without a fact that neither it nor the trace gives."""

    code = "DML615"


class ImplausibleAnswerError(DacemlError):
    """A prediction that breaks a law of every run: no time at all, or more than n times by n devices."""

    code = "DML614"
