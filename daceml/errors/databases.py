"""Errors of operation databases and of measurements."""

from __future__ import annotations

from daceml.errors.base import DacemlError


class DatabaseFileError(DacemlError):
    """A file that is no operation database, or one that a newer daceml wrote."""

    code = "DML621"


class DatabaseDamageError(DatabaseFileError):
    """An operation database that is not as it was written."""

    code = "DML622"


class DatabaseAccessError(DacemlError):
    """An operation database that cannot be written or read now: locked, full, closed, of another process."""

    code = "DML623"


class EntryError(DacemlError):
    """A row that an operation database cannot keep: a duration below zero, an attribute of an odd type."""

    code = "DML624"


class MeasurementFileError(DacemlError):
    """A table, log or export of measurements that cannot be read as what it was said to be."""

    code = "DML625"


class MeasurementError(DacemlError):
    """An operation whose time cannot be measured: its shapes follow from data, or noise hides it."""

    code = "DML631"


class SamplingPlanError(DacemlError):
    """A sampling plan that is damaged, or names operators, sizes or attributes that there are not."""

    code = "DML632"
