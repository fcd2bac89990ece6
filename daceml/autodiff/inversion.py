"""Adjoint accesses: from `read X[f(p)]` for every point p of a box to `dX[j] = sum over {p : f(p) = j}`.

Where f is affine with whole numbers, the equations f(p) = j are solved for some of the parameters, one for
each dimension of X; those that are left are summed over. So a gradient is gathered: every element is
written once, no two writes meet and nothing is filled with zeros. A broadcast becomes a sum, a slice a
condition, a stencil or a convolution a sum over the window. Only positions that depend on data, or
indices that are not affine, scatter.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import dace
import sympy
from dace import symbolic

from daceml.sdfg.builder import parameters, reduced_parameters, span
from daceml.sdfg.scalar import (
    DType,
    Index,
    Scalar,
    apply,
    cast,
    compute_type,
    index_value,
    literal,
    read,
    reduce_over,
)
from daceml.sdfg.scalar_rewrite import as_index, free_names, rebuilt, rename, substitute


class NotInvertible(Exception):  # noqa: N818  (an answer, not an error)
    """Indices whose equations cannot be solved; the message says why."""


@dataclass(kw_only=True)
class _Solution:
    """Parameters in terms of `i0, i1, …` (positions in X) and of those that are summed over.

    Attributes:
        values: parameter -> expression.
        inside: those that are certainly in their range.
        conditions: what has to hold.
    """

    values: dict[str, Index] = field(default_factory=dict[str, Index])
    inside: set[str] = field(default_factory=set[str])
    conditions: list[Scalar] = field(default_factory=list[Scalar])


def gathered(
    shape: Sequence[Index],
    indices: Sequence[Index],
    box: Mapping[str, Index],
    term: Scalar,
    dtype: DType,
    shape_of: Callable[[str], Sequence[Index]],
) -> Scalar:
    """The adjoint of one read, over `i0, i1, …` in the shape of what was read; it may hold one reduction.

    Args:
        shape: of the array that was read.
        indices: one expression over the parameters for each dimension.
        box: parameter -> extent; each runs from 0.
        term: what flows back to one read; no reduction in it.
        dtype: element type of the array.
        shape_of: array -> its shape.
    Raises:
        NotInvertible: the indices are not affine with whole factors, or cannot be told apart.
    """
    places = parameters(len(shape))
    solution = _solve(shape, indices, box, places)
    left = [p for p in box if p not in solution.values and not _is_one(box[p])]
    sums = dict(zip(left, reduced_parameters(len(left)), strict=True))
    names: dict[str, Index] = {**sums, **{p: 0 for p in box if _is_one(box[p]) and p not in solution.values}}
    ranges = {**dict(zip(places, shape, strict=True)), **{sums[p]: box[p] for p in left}}
    conditions = [substitute(c, names) for c in solution.conditions]
    guarded: dict[str, Scalar] = {}
    for name, value in solution.values.items():
        value = rename(value, names)
        names[name] = value
        if name in solution.inside:
            continue
        low, high = span(value, ranges) or (None, None)
        extent = box[name]
        outside = False
        if not at_least(low, 0):
            conditions.append(apply("ge", index_value(value), 0))
            outside = True
        if not at_least(None if high is None else extent - 1, high):
            conditions.append(apply("lt", index_value(value), index_value(extent)))
            outside = True
        if outside:
            clamped = apply("max", index_value(value), 0)
            guarded[name] = apply("min", clamped, index_value(as_index(extent - 1)))
    body = substitute(_guard(term, guarded, shape_of), names) if guarded else substitute(term, names)
    body = cast(body, compute_type(dtype))
    if conditions:
        holds = conditions[0]
        for condition in conditions[1:]:
            holds = apply("and", holds, condition)
        body = apply("where", holds, body, literal(0.0, body.dtype))
    if not left:
        return body
    total = reduce_over("sum", [sums[p] for p in left], [box[p] for p in left], body)
    return cast(total, compute_type(dtype))


def _solve(
    shape: Sequence[Index], indices: Sequence[Index], box: Mapping[str, Index], places: Sequence[Index]
) -> _Solution:
    found = _Solution()
    for place, extent, index in zip(places, shape, indices, strict=True):
        constant, factors = _affine(index, box)
        known = sum((factors[p] * symbolic.symbol(p) for p in factors if p in found.values), start=0)
        fresh = [p for p in factors if p not in found.values]
        number = as_index(place - rename(as_index(constant + known), found.values))
        if entangled := free_names(number) & set(fresh):
            raise NotInvertible(f"{sorted(entangled)} stand in two dimensions")
        if not fresh:
            if factors or not _is_one(extent):
                found.conditions.append(apply("eq", index_value(number), literal(0, dace.int64)))
            continue
        digits = _mixed_radix(fresh, factors, box) if len(fresh) > 1 else None
        if digits is not None:
            _take_apart(found, number, digits, factors, box, dict(zip(places, shape, strict=True)))
            continue
        solved = max(fresh, key=lambda p: _size(box[p]))
        factor = factors[solved]
        if not isinstance(factor, int):
            raise NotInvertible(f"the factor {factor} of an index is symbolic")
        others = sum((factors[p] * symbolic.symbol(p) for p in fresh if p != solved), start=0)
        number = as_index(number - others)
        if factor in (1, -1):
            found.values[solved] = as_index(number * factor)
            continue
        remainder = apply("floor_mod", index_value(number), literal(abs(factor), dace.int64))
        found.conditions.append(apply("eq", remainder, literal(0, dace.int64)))
        # exact where the remainder is zero; elsewhere the value is not used
        found.values[solved] = symbolic.int_floor(number if factor > 0 else as_index(-number), abs(factor))
    for name, value in found.values.items():
        found.values[name] = rename(value, found.values)
        if free_names(found.values[name]) & found.values.keys():
            raise NotInvertible("the indices of several dimensions depend on each other")
    return found


def _take_apart(
    found: _Solution,
    number: Index,
    digits: Sequence[str],
    factors: Mapping[str, Index],
    box: Mapping[str, Index],
    ranges: Mapping[Index, Index],
) -> None:
    """Solve `number = digits` in a mixed radix."""
    bounds = span(number, ranges)
    total = as_index(factors[digits[0]] * box[digits[0]])
    if bounds is None or not (at_least(bounds[0], 0) and at_least(as_index(total - 1), bounds[1])):
        raise NotInvertible("a part of a reshaped dimension")
    for position, name in enumerate(digits):
        weight = factors[name]
        value = symbolic.int_floor(number, weight) if weight != 1 else number
        found.values[name] = as_index(sympy.Mod(value, box[name])) if position else as_index(value)
        found.inside.add(name)


def _affine(index: Index, box: Mapping[str, Index]) -> tuple[Index, dict[str, Index]]:
    """Constant and factors of an index; the factors are whole numbers or sizes."""
    if isinstance(index, int):
        return index, {}
    constant: Index = 0
    factors: dict[str, Index] = {}
    for term in sympy.Add.make_args(sympy.expand(index)):
        names = free_names(term) & box.keys()
        if not names:
            constant = constant + term
            continue
        if len(names) > 1:
            raise NotInvertible(f"{term} multiplies two parameters")
        (name,) = names
        parameter = next(s for s in term.free_symbols if str(s) == name)
        factor = sympy.simplify(term / parameter)
        if factor.has(parameter):
            raise NotInvertible(f"{term} is not affine")
        factors[name] = as_index(factors.get(name, 0) + factor)
    return as_index(constant), {p: f for p, f in factors.items() if f != 0}


def _mixed_radix(
    names: Sequence[str], factors: Mapping[str, Index], box: Mapping[str, Index]
) -> list[str] | None:
    """The parameters as digits of one number, the leading one first; None where they are none."""
    left = list(names)
    weight: Index = 1
    digits: list[str] = []
    while left:
        digit = next((p for p in left if str(factors[p]) == str(weight)), None)
        if digit is None:
            return None
        left.remove(digit)
        digits.insert(0, digit)
        weight = as_index(weight * box[digit])
    return digits


def _guard(term: Scalar, guarded: Mapping[str, Scalar], shape_of: Callable[[str], Sequence[Index]]) -> Scalar:
    """The term with every read through a guarded parameter at its clamped position instead."""

    def position(index: Index) -> Index | Scalar:
        touched = free_names(index) & guarded.keys()
        if not touched:
            return index
        constant, factors = _affine(index, dict.fromkeys(touched, 0))
        total: Scalar | None = None
        for name, factor in factors.items():
            part = guarded[name] if factor == 1 else guarded[name] * index_value(factor)
            total = part if total is None else total + part
        assert total is not None
        return total if constant == 0 else total + index_value(constant)

    def clamped(node: Scalar, args: tuple[Scalar, ...]) -> Scalar:
        match node.op:
            case "read":
                array, indices = node.data
                return _element(array, node.dtype, [position(i) for i in indices], shape_of(array))
            case "gather":
                array, indices, shape = node.data
                given = iter(args)
                moved = [next(given) if i is None else position(i) for i in indices]
                return _element(array, node.dtype, moved, shape)
            case "reduce":
                raise NotInvertible("a reduction stands in what flows back")
            case _:
                return Scalar(node.op, node.dtype, args, node.data)

    return rebuilt(term, clamped)


def _element(array: str, dtype: DType, index: Sequence[Index | Scalar], shape: Sequence[Index]) -> Scalar:
    value = read(array, dtype, index, tuple(shape))
    # `read` widens a half element; the term has a widening around it already
    return value.args[0] if value.dtype != dtype else value


def at_least(high: Index | None, low: Index | None) -> bool:
    """Whether one size is certainly no less than another; False where either is not known."""
    if high is None or low is None:
        return False
    difference = sympy.sympify(high - low) if not isinstance(high - low, int) else high - low
    if isinstance(difference, int):
        return difference >= 0
    return bool(difference.is_nonnegative)


def _is_one(extent: Index) -> bool:
    return isinstance(extent, int) and extent == 1


def _size(extent: Index) -> int:
    return extent if isinstance(extent, int) else 1 << 62
