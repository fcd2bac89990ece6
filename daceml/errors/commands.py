"""Errors of settings, of the environment and of the command line."""

from __future__ import annotations

from daceml.errors.base import DacemlError


class ConfigurationError(DacemlError):
    """An option or environment variable that daceml does not know or cannot take."""

    code = "DML001"


class EnvironmentProblem(DacemlError):
    """Something on this machine is missing or of the wrong version."""

    code = "DML002"


class ModelReferenceError(DacemlError):
    """A MODEL argument on the command line that names nothing usable."""

    code = "DML501"


class OutputFileError(DacemlError):
    """A file that the command line was asked to write, and cannot."""

    code = "DML502"
