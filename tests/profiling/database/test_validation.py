"""Which rows are kept: all that is wrong with one is said at once."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from daceml.errors import EntryError
from daceml.profiling.database.records import Duration, Environment, Operand, Operation
from daceml.profiling.database.validation import check_entry, instant_us
from tests.profiling.database.entries import VARIED, entry, matmul


def test_rows_that_mean_something_pass():
    for one in VARIED:
        check_entry(one)
    check_entry(entry(seconds=0))


def test_an_error_has_a_line_for_everything_that_is_wrong():
    wrong = replace(entry(seconds=-1.0, date="yesterday"), source="", provenance="guessed")
    with pytest.raises(EntryError) as refusal:
        check_entry(wrong)  # pyright: ignore[reportArgumentType]
    assert str(refusal.value) == (
        "[DML624] a row that the database cannot keep\n"
        "  where: operator 'aten::mm'\n"
        "  why:   median_s is -1.0, not a number of seconds from 0 on\n"
        "         the provenance is 'guessed', none of measured, imported, predicted\n"
        "         the source is empty\n"
        "         the date 'yesterday' is not ISO 8601\n"
        "  fix:   correct the row: daceml.profiling.database.records says what each field holds"
    )


@pytest.mark.parametrize(
    ("duration", "why"),
    [
        ({"median_s": float("nan")}, "median_s is nan"),
        ({"median_s": float("inf")}, "median_s is inf"),
        ({"median_s": "1"}, "median_s is '1', not a number"),
        ({"median_s": True}, "median_s is True"),
        ({"median_s": None}, "median_s is None"),
        ({"median_s": 10**400}, "not a number of seconds"),
        ({"median_s": 1.0, "mad_s": -1.0}, "mad_s is -1.0"),
        ({"median_s": 1.0, "p90_s": float("nan")}, "p90_s is nan"),
        ({"median_s": 1.0, "samples": 0}, "0 samples"),
        ({"median_s": 1.0, "samples": 1.5}, "1.5 samples"),
        ({"median_s": 1.0, "mode": "hot"}, "the mode is 'hot'"),
    ],
)
def test_durations(duration: dict[str, Any], why: str):
    with pytest.raises(EntryError) as refusal:
        check_entry(replace(entry(), duration=Duration(**duration)))
    assert why in refusal.value.why


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"operator": ""}, "the operator is empty"),
        ({"operator": "a\0b"}, "characters that no file of text can hold"),
        ({"operator": "\ud800"}, "characters that no file of text can hold"),
        ({"direction": "sideways"}, "the direction is 'sideways'"),
        ({"kernel": None}, "the kernel is None"),
        ({"attributes": {"a": [1]}}, "attribute 'a' is of type list"),
        ({"attributes": {"a": (1, 2.0)}}, "attribute 'a' is of type tuple"),
        ({"attributes": {"a": np.float32(1)}}, "attribute 'a' is of type float32"),
        ({"attributes": {"a": 2**63}}, "attribute 'a' is of type int"),
        ({"attributes": {"": 1}}, "the attribute's name is empty"),
        ({"operands": (Operand(shape=(-1,), dtype="int8"),)}, "the shape of operand 0 is (-1,)"),
        ({"operands": (Operand(shape=(True,), dtype="int8"),)}, "the shape of operand 0 is (True,)"),
        ({"operands": (Operand(shape=[1], dtype="int8"),)}, "the shape of operand 0 is [1]"),  # pyright: ignore[reportArgumentType]
        ({"operands": (Operand(shape=(1,), dtype=""),)}, "the element type of operand 0 is empty"),
        ({"operands": (Operand(shape=(1,), dtype="int8", layout=(1, 1)),)}, "the layout of operand 0"),
    ],
)
def test_operations(fields: dict[str, Any], why: str):
    operation: Operation = replace(matmul(), **fields)
    with pytest.raises(EntryError) as refusal:
        check_entry(entry(operation))
    assert why in refusal.value.why


@pytest.mark.parametrize(
    ("environment", "why"),
    [
        ({"device": ""}, "the device is empty"),
        ({"device": "A", "software": {"torch": 2}}, "the version of torch is 2"),
        ({"device": "A", "software": None}, "the software is None"),
        ({"device": "A", "fingerprint": 7}, "the fingerprint is 7"),
    ],
)
def test_environments(environment: dict[str, Any], why: str):
    with pytest.raises(EntryError) as refusal:
        check_entry(replace(entry(), environment=Environment(**environment)))
    assert why in refusal.value.why


def test_dates_are_compared_as_moments():
    assert instant_us("1970-01-01") == 0
    assert instant_us("1970-01-01T00:00:01") == instant_us("1970-01-01T01:00:01+01:00") == 1_000_000
    assert instant_us("2026-11-23T10:00:00.000001Z") - instant_us("2026-11-23T10:00:00+00:00") == 1
