"""Adjoints of statements whose points read different elements: each point adds to what it has read."""

from __future__ import annotations

from collections.abc import Sequence

import sympy
from dace import symbolic

from daceml.autodiff.adjoint import Forward
from daceml.autodiff.scalar_derivatives import derivative
from daceml.sdfg.lifting import Statement
from daceml.sdfg.scalar import Index, Scalar, read
from daceml.sdfg.tasklet_code import find_reductions


def pointwise_flows(
    statement: Statement, cotangent: str, forward: Forward
) -> list[tuple[Scalar, Scalar]] | None:
    """(what is read, what flows back to it) at each point; None where two points may read one element."""
    if find_reductions(statement.value):
        return None
    dtype, shape = forward.arrays[statement.target].dtype, forward.shape(statement.target)
    found = derivative(statement.value, read(cotangent, dtype, statement.index, shape), forward.matters, None)
    if not all(f.leaf.op == "read" and tells_apart(statement, f.leaf.data[1]) for f in found):
        return None
    terms: dict[tuple[str, ...], tuple[Scalar, Scalar]] = {}
    for f in found:
        key = (f.leaf.data[0], *map(str, f.leaf.data[1]))
        leaf, before = terms.get(key, (f.leaf, None))
        terms[key] = (leaf, f.cotangent if before is None else before + f.cotangent)
    return list(terms.values())


def tells_apart(statement: Statement, index: Sequence[Index]) -> bool:
    """Whether an index has another value at every point of the statement's box."""
    params = {str(p) for p, e in zip(statement.params, statement.extents, strict=True) if str(e) != "1"}
    seen: set[str] = set()
    for place in index:
        if isinstance(place, int):
            continue
        names = {str(s) for s in place.free_symbols} & params
        if len(names) == 1:
            (name,) = names
            slope = sympy.expand(place).coeff(symbolic.symbol(name))
            rest = sympy.expand(place - slope * symbolic.symbol(name))
            if slope.is_Integer and slope != 0 and name not in {str(s) for s in rest.free_symbols}:
                seen.add(name)
    return seen == params


def covers(statement: Statement, index: Sequence[Index], shape: Sequence[Index]) -> bool:
    """Whether an index goes through every element of a shape."""
    extents = dict(zip(map(str, statement.params), statement.extents, strict=True))
    for place, extent in zip(index, shape, strict=True):
        if str(extent) == "1" and str(place) == "0":
            continue
        if str(place) not in extents or str(extents.pop(str(place))) != str(extent):
            return False
    return True
