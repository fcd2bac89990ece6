"""Which rows are kept: all that is wrong with one is said at once."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from daceml.errors import EntryError
from daceml.operations.database.records import Duration, Environment, Operand, Operation
from daceml.operations.database.validation import check_entry, instant_us
from tests.operations.database.entries import VARIED, entry, matmul
from tests.support.golden import raises


def test_rows_that_mean_something_pass():
    for one in VARIED:
        check_entry(one)
    check_entry(entry(seconds=0))


def test_an_error_has_a_line_for_everything_that_is_wrong():
    wrong = replace(entry(seconds=-1.0, date="yesterday"), source="", provenance="guessed")
    with raises(EntryError, "'aten::mm'", "'guessed'", "predicted", "'yesterday'", "ISO 8601") as refusal:
        check_entry(wrong)  # pyright: ignore[reportArgumentType]
    first, _, third, _ = refusal.value.why.splitlines()
    assert "median_s" in first and "-1.0" in first and "source" in third


@pytest.mark.parametrize(
    ("duration", "facts"),
    [
        ({"median_s": float("nan")}, ["median_s", "nan"]),
        ({"median_s": float("inf")}, ["median_s", "inf"]),
        ({"median_s": "1"}, ["median_s", "'1'"]),
        ({"median_s": True}, ["median_s", "True"]),
        ({"median_s": None}, ["median_s", "None"]),
        ({"median_s": 10**400}, ["median_s", 10**400]),
        ({"median_s": 1.0, "mad_s": -1.0}, ["mad_s", "-1.0"]),
        ({"median_s": 1.0, "p90_s": float("nan")}, ["p90_s", "nan"]),
        ({"median_s": 1.0, "samples": 0}, ["0 samples"]),
        ({"median_s": 1.0, "samples": 1.5}, ["1.5 samples"]),
        ({"median_s": 1.0, "mode": "hot"}, ["mode", "'hot'", "graph"]),
    ],
)
def test_durations(duration: dict[str, Any], facts: list[object]):
    with raises(EntryError, *facts):
        check_entry(replace(entry(), duration=Duration(**duration)))


@pytest.mark.parametrize(
    ("fields", "facts"),
    [
        ({"operator": ""}, ["operator ''", "empty"]),
        ({"operator": "a\0b"}, [r"operator 'a\x00b'", "characters"]),
        ({"operator": "\ud800"}, [r"operator '\ud800'", "characters"]),
        ({"direction": "sideways"}, ["direction", "'sideways'", "forward"]),
        ({"kernel": None}, ["kernel", "None"]),
        ({"attributes": {"a": [1]}}, ["attribute 'a'", "list", "[1]"]),
        ({"attributes": {"a": (1, 2.0)}}, ["attribute 'a'", "tuple", "(1, 2.0)"]),
        ({"attributes": {"a": np.float32(1)}}, ["attribute 'a'", "float32", "1.0"]),
        ({"attributes": {"a": 2**63}}, ["attribute 'a'", "int", 2**63]),
        ({"attributes": {"": 1}}, ["attribute", "name", "empty"]),
        ({"operands": (Operand(shape=(-1,), dtype="int8"),)}, ["shape of operand 0", "(-1,)"]),
        ({"operands": (Operand(shape=(True,), dtype="int8"),)}, ["shape of operand 0", "(True,)"]),
        ({"operands": (Operand(shape=[1], dtype="int8"),)}, ["shape of operand 0", "[1]"]),  # pyright: ignore[reportArgumentType]
        ({"operands": (Operand(shape=(1,), dtype=""),)}, ["element type of operand 0", "empty"]),
        (
            {"operands": (Operand(shape=(1,), dtype="int8", layout=(1, 1)),)},
            ["layout of operand 0", "(1, 1)"],
        ),
    ],
)
def test_operations(fields: dict[str, Any], facts: list[object]):
    operation: Operation = replace(matmul(), **fields)
    with raises(EntryError, *facts):
        check_entry(entry(operation))


@pytest.mark.parametrize(
    ("environment", "facts"),
    [
        ({"device": ""}, ["device", "empty"]),
        ({"device": "A", "software": {"torch": 2}}, ["version of torch", "2"]),
        ({"device": "A", "software": None}, ["software", "None"]),
        ({"device": "A", "fingerprint": 7}, ["fingerprint", "7"]),
    ],
)
def test_environments(environment: dict[str, Any], facts: list[str]):
    with raises(EntryError, *facts):
        check_entry(replace(entry(), environment=Environment(**environment)))


def test_dates_are_compared_as_moments():
    assert instant_us("1970-01-01") == 0
    assert instant_us("1970-01-01T00:00:01") == instant_us("1970-01-01T01:00:01+01:00") == 1_000_000
    assert instant_us("2026-11-23T10:00:00.000001Z") - instant_us("2026-11-23T10:00:00+00:00") == 1
