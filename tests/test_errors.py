"""Errors: a code, what, where, why, fix."""

from __future__ import annotations

import re

import pytest

from daceml import errors
from daceml.errors import DacemlError

CLASSES = [
    value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, DacemlError)
]


def test_an_error_reads_as_what_where_why_and_fix():
    error = errors.NoImplementationError(
        "no implementation of ONNX NonMaxSuppression can run here",
        where="Detector.head.nms (model.py:41)",
        why="native: none registered\naten: no equivalent",
        fix="pass fallback",
    )
    assert str(error) == (
        "[DML101] no implementation of ONNX NonMaxSuppression can run here\n"
        "  where: Detector.head.nms (model.py:41)\n"
        "  why:   native: none registered\n"
        "         aten: no equivalent\n"
        "  fix:   pass fallback"
    )


def test_what_is_empty_is_left_out():
    assert (
        str(errors.CallError("too few inputs", fix="pass them"))
        == "[DML203] too few inputs\n  fix:   pass them"
    )


def test_parts_can_be_read_by_a_program():
    error = errors.CallError("what", where="where", why="why", fix="fix")
    assert (error.what, error.where, error.why, error.fix) == ("what", "where", "why", "fix")
    assert isinstance(error, DacemlError)


@pytest.mark.parametrize("cls", CLASSES)
def test_every_class_has_a_code_and_says_when_it_is_raised(cls: type[DacemlError]):
    assert re.fullmatch(r"DML\d{3}", cls.code)
    assert cls.__doc__


def test_codes_are_unique():
    own = [cls.code for cls in CLASSES if "code" in vars(cls)]
    assert len(set(own)) == len(own)
    # those without one are kinds of an error that has one; `BeyondNetworksError` marks some
    kinds = {cls for cls in CLASSES if "code" not in vars(cls)} - {errors.BeyondNetworksError}
    assert all(cls.code in own and cls.code != errors.DacemlError.code for cls in kinds)
