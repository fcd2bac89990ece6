"""Numbers as files spell them: times that a float64 cannot hold, and whatever else stands in their place."""

from __future__ import annotations

import math
from typing import Any

from daceml.profiling.trace import UNKNOWN

# A float64 of today's clock in microseconds has a resolution of a quarter of one; files may have nanoseconds.
_DIGITS = 9
# Beyond every clock, and within what an int64 and a float64 can do.
LARGEST = float(2**62)


class ExactTime(float):
    """A time with more digits than a float64 holds: to arithmetic the nearest float.

    Attributes:
        whole: the part before the point.
        rest: what comes after it, from 0 to 1.
    """

    __slots__ = ("rest", "whole")
    whole: int
    rest: float


def number_of(text: str) -> float:
    """A number with a point or an exponent, as JSON spells it."""
    if len(text) <= _DIGITS:
        return float(text)
    whole, point, rest = text.partition(".")
    if len(whole) <= _DIGITS or not point or not (whole.isdigit() and rest.isdigit()):
        return float(text)
    value = ExactTime(text)
    value.whole, value.rest = int(whole), float("0." + rest)
    return value


def is_number(value: Any) -> bool:
    """Whether it is a finite number of sensible size, and no truth value."""
    return type(value) in (int, float, ExactTime) and -LARGEST < value < LARGEST


def parts_of(value: float) -> tuple[int, float]:
    """Whole microseconds of a time, and the rest, to the last digit that the file gave."""
    if type(value) is int:
        return value, 0.0
    if type(value) is ExactTime:
        return value.whole, value.rest
    whole = math.floor(value)
    return whole, value - whole


def since(value: float, origin: int) -> float:
    """value - origin, to the last digit that the file gave."""
    if type(value) is ExactTime:
        return (value.whole - origin) + value.rest
    return float(value - origin)


def identifier(value: Any) -> int:
    """A number that links events: UNKNOWN for everything that is none."""
    if type(value) is int and 0 <= value < 2**63:
        return value
    if type(value) is str and len(value) < 19 and value.isdecimal():
        return int(value)
    return UNKNOWN
