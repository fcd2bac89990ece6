"""Errors of models that leave this process."""

from __future__ import annotations

from daceml.errors.base import DacemlError


class DeploymentError(DacemlError):
    """A model that cannot be exported, or not in this way."""

    code = "DML801"


class BundleError(DacemlError):
    """An exported model that cannot be loaded: other bytes than were exported, or another machine."""

    code = "DML802"
