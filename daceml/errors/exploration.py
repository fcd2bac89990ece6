"""Errors of what is explored before it is deployed."""

from __future__ import annotations

from daceml.errors.base import DacemlError


class ExplorationError(DacemlError):
    """A model, a budget or a variant that cannot be explored."""

    code = "DML701"


class ResultsDifferError(ExplorationError):
    """A variant whose results are further from the standard variant's than rounding explains."""
