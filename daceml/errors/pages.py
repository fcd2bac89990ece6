"""Errors of the local page."""

from __future__ import annotations

from daceml.errors.base import DacemlError


class PageError(DacemlError):
    """A page that cannot be shown: its target, its port, or what it was asked."""

    code = "DML811"


class MoveError(DacemlError):
    """A move of a guided optimisation that cannot be made."""

    code = "DML812"


class ReplayError(DacemlError):
    """A recipe that gives another program than it was exported with."""

    code = "DML813"
