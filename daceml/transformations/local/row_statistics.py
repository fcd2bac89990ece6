"""Which pairs of reductions are statistics of a row.

A sum of (x - mean)^2 behind the mean of x, and a sum of exp(x - max) behind the maximum.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import dace
import sympy

from daceml.sdfg.scalar import FLOATS, HALF, Index, Scalar

Shifts = tuple[Literal["exponentials", "squares"], tuple[Scalar, ...]]


@dataclass(frozen=True, kw_only=True, eq=False)
class First:
    """What a first reduction computes.

    Attributes:
        total: the node of `result` that is the reduction.
        elements: extents of a row.
    """

    target: str
    index: tuple[Index, ...]
    result: Scalar
    total: Scalar
    elements: tuple[Index, ...]

    @property
    def terms(self) -> Scalar:
        """What is reduced."""
        return self.total.args[0]

    @property
    def operator(self) -> str:
        """How."""
        return self.total.data.operator

    def is_read(self, node: Scalar) -> bool:
        """Whether a node is one of its results."""
        return node.op == "read" and node.data[0] == self.target

    @property
    def is_mean(self) -> bool:
        """Whether it is the mean of its terms."""
        result = _plain(self.result)
        if self.operator != "sum" or result.op != "div" or result.args[0] is not self.total:
            return False
        count = result.args[1]
        known = all(isinstance(e, int) for e in self.elements)
        return count.op == "literal" and known and count.data == math.prod(self.elements)

    @property
    def is_maximum(self) -> bool:
        """Whether it is the largest of its terms."""
        return self.operator == "max" and self.result is self.total


def shifts_of(first: First, terms: Scalar) -> Shifts | None:
    """What the terms of a sum are, and those of their nodes that are taken off every element.

    None where they are no statistics of what the first reduction goes through.
    """
    return _squares(first, terms) or _exponentials(first, terms)


def _squares(first: First, terms: Scalar) -> Shifts | None:
    """(x - mean)^2"""
    match _widened(terms):
        case Scalar(op="mul", args=(Scalar(op="sub", args=(x, mean)), Scalar(op="sub", args=(y, again)))):
            known = first.is_mean and first.is_read(mean) and first.is_read(again)
            same = _key(_widened(x)) == _key(_widened(y)) == _key(_widened(first.terms))
            return ("squares", (mean, again)) if known and same else None
        case _:
            return None


def _exponentials(first: First, terms: Scalar) -> Shifts | None:
    """exp(x - max), where the maximum may be 0 if it is infinite"""
    match _widened(terms):
        case Scalar(op="exp", args=(Scalar(op="sub", args=(x, shift)),)):
            known = first.is_maximum and _key(_widened(x)) == _key(_widened(first.terms))
            return ("exponentials", (shift,)) if known and _is_shift(first, shift) else None
        case _:
            return None


def _is_shift(first: First, shift: Scalar) -> bool:
    match shift:
        case Scalar(op="where", args=(Scalar(op="isinf", args=(tested,)), zero, otherwise)):
            whole = zero.op == "literal" and zero.data == 0
            return whole and first.is_read(tested) and first.is_read(otherwise)
        case _:
            return first.is_read(shift)


def _plain(value: Scalar) -> Scalar:
    """A value without conversions around it."""
    while value.op == "cast":
        (value,) = value.args
    return value


def _widened(value: Scalar) -> Scalar:
    """A value without exact conversions around it."""
    while value.op == "cast" and _is_exact(value):
        (value,) = value.args
    return value


def _is_exact(conversion: Scalar) -> bool:
    given, made = conversion.args[0].dtype, conversion.dtype
    return (made == dace.float32 and given in HALF) or (made == dace.float64 and given in FLOATS)


def _key(value: Scalar) -> tuple[object, ...]:
    """Equal for values that are computed alike."""
    data = str(sympy.sympify(value.data)) if value.op == "index" else str(value.data)
    return (value.op, value.dtype.to_string(), data, *map(_key, value.args))
