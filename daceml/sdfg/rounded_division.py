"""Whole numbers divided and rounded, in one form: `int_floor` of a numerator whose factors are not negative.

Sizes that are equal so compare equal more often, and C++, which rounds to zero, divides them as Python does.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import sympy
from dace import symbolic

from daceml.sdfg.sizes import Size, fraction, size


def floor_div(value: Any, divisor: Any) -> Any:
    """The quotient, rounded down.

    Raises:
        ZeroDivisionError: the divisor is 0.
    """
    if divisor == 0:
        raise ZeroDivisionError(f"{value} // 0")
    above, below = fraction(value)
    below = below * divisor
    if not _is_number(below):
        quotient = sympy.cancel(above / below)
        return quotient if sympy.fraction(quotient)[1] == 1 else symbolic.int_floor(above, below)
    if below < 0:
        above, below = -above, -below
    below = int(below)
    terms = sympy.expand(above).as_coefficients_dict()
    constant = int(terms.pop(sympy.S.One, 0))
    rest = {term: int(factor) for term, factor in terms.items() if factor % below}
    if rest and all(factor < 0 for factor in rest.values()):
        return -floor_div(below - 1 - above, below)
    whole: Any = sum((term * (factor // below) for term, factor in terms.items()), sympy.S.Zero)
    common = math.gcd(below, *rest.values())
    below, constant = below // common, constant // common
    rest = {term: factor // common % below for term, factor in rest.items()}
    whole, constant = whole + constant // below, constant % below
    if not rest:
        return size(whole)
    if len(rest) == 1 and 1 in rest.values() and isinstance(inner := next(iter(rest)), symbolic.int_floor):
        # floor((floor(a / b) + c) / d) = floor((a + b c) / (b d))
        over, under = tuple[Any, ...](inner.args)
        return whole + floor_div(over + constant * under, under * below)
    over: Any = sum((term * factor for term, factor in rest.items()), sympy.Integer(constant))
    for term in rest:
        for part in sympy.Mul.make_args(term):
            if isinstance(part, sympy.Min | sympy.Max) and not never_negative(part):
                # a quotient grows with its numerator: the least quotient is that of the least numerator
                numerators = (over.xreplace({term: term.xreplace({part: arg})}) for arg in part.args)
                return whole + part.func(*(floor_div(one, below) for one in numerators))
    return whole + symbolic.int_floor(over, below)


def ceil_div(value: Any, divisor: Any) -> Any:
    """The quotient, rounded up."""
    return size(-floor_div(-value, divisor))


def floor_mod(value: Any, divisor: Any) -> Any:
    """The remainder of `floor_div`."""
    return size(sympy.expand(value - divisor * floor_div(value, divisor)))


def never_negative(value: Size) -> bool:
    """Whether it can be seen that a whole number is 0 or more for all symbols from 1 on."""
    if isinstance(value, int):
        return value >= 0
    # expanded within, SymPy would compare what Min and Max are of, which takes longer than all else
    names = {found: sympy.Dummy() for found in sympy.sympify(value).atoms(sympy.Min, sympy.Max)}
    kept = {name: found for found, name in names.items()}
    terms: Any = sympy.expand(value.xreplace(names)).as_coefficients_dict()
    bounds = [
        [factor * bound for bound in _bounds(term.xreplace(kept), up=factor < 0)]
        for term, factor in terms.items()
    ]
    return any(_is_positive_sum(sum(chosen)) for chosen in itertools.product(*bounds))


def _bounds(term: Any, *, up: bool) -> list[Any]:
    """Expressions without functions that are no larger than a term; with `up`, no smaller."""
    if isinstance(term, symbolic.int_floor) and _is_number(term.args[1]):
        over, below = tuple[Any, ...](term.args)
        if up:
            return [over / below]
        return [(over - below + 1) / below, *([sympy.S.Zero] if never_negative(over) else [])]
    if isinstance(term, sympy.Min if up else sympy.Max):
        return list(term.args)
    if term.has(sympy.Min, sympy.Max):
        parts: Any = term.args if isinstance(term, sympy.Min) else sympy.Mul.make_args(term)
        known = not up and not isinstance(term, sympy.Max) and all(map(never_negative, parts))
        return [sympy.S.Zero] if known else []
    return [term]


def _is_positive_sum(value: Any) -> bool:
    """Whether a sum of products of symbols is more than -1, by its terms in how far they are above 1."""
    value = sympy.sympify(value)
    if value.has(sympy.Function, sympy.Min, sympy.Max):
        return False
    moved = sympy.expand(value.subs({symbol: symbol + 1 for symbol in value.free_symbols}))
    factors = moved.as_coefficients_dict()
    return factors.pop(sympy.S.One, 0) > -1 and all(factor >= 0 for factor in factors.values())


def _is_number(value: Any) -> bool:
    return bool(sympy.sympify(value).is_Integer)
