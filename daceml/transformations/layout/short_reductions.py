"""write_out_reductions: a reduction of a few elements is written out, so that the loop around it vectorises.

y[c] = max over k in 0..3 of x[c, k]   ->   y[c] = max(max(x[c, 0], x[c, 1]), x[c, 2])

A loop inside a loop keeps gcc from computing neighbours together: a maximum over 3 x 3 of float32 takes 7
times as long. The order stays, and with it every bit.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import dace
from dace.sdfg import nodes

from daceml.sdfg.builder import Builder, Computation, parameters
from daceml.sdfg.lifting import NotLiftable, Statement, lift
from daceml.sdfg.network import Network
from daceml.sdfg.passes import PassRecord, Refusal
from daceml.sdfg.scalar import FLOATS, INTEGERS, Reduction, Scalar, apply, cast, identity
from daceml.sdfg.scalar_rewrite import nodes_of, rename, replace_parts, substitute
from daceml.sdfg.scopes import remove_scope, scope_nodes, top_maps
from daceml.sdfg.sizes import product
from daceml.sdfg.tasklet_code import find_reductions

# 3 x 3 and 4 x 4; longer ones fill the instruction cache, and windows from here on are reduced one dimension
# after the other.
_LONGEST = 16
_OPERATIONS = {"sum": "add", "prod": "mul"}


def write_out_reductions(network: Network) -> int:
    """Write out short reductions of the top-level maps; returns how many. Mutates the SDFG."""
    sdfg, state = network.sdfg, network.state
    written, refused = 0, list[Refusal]()
    for entry in top_maps(state):
        if not _holds_one_loop(state, entry):
            continue
        try:
            statements = lift(sdfg, state, entry)
        except NotLiftable as reason:
            refused.append(Refusal(subject=entry.map.label, reason=str(reason)))
            continue
        found = _written_out(statements)
        if isinstance(found, str):
            refused.append(Refusal(subject=statements[0].target, reason=found))
            continue
        remove_scope(state, entry)
        builder = Builder(sdfg, state)
        builder.emit(found)
        written += 1
    network.passes.append(
        PassRecord(
            level="layout",
            name="write_out_reductions",
            applied={"write_out_reductions": written} if written else {},
            refused=tuple(refused),
        )
    )
    return written


def _holds_one_loop(state: dace.SDFGState, entry: nodes.MapEntry) -> bool:
    return sum(isinstance(n, nodes.MapEntry) for n in scope_nodes(state, entry)) == 2


def _written_out(statements: Sequence[Statement]) -> Computation | str:
    """The computation without its reduction, or why it stays."""
    if len(statements) != 1 or statements[0].resolves is not None:
        return "it has more than one assignment"
    (statement,) = statements
    if any(isinstance(i, Scalar) for i in statement.index):
        return "it writes at positions that depend on data"
    reductions = find_reductions(statement.value)
    if len(reductions) != 1:
        return f"it has {len(reductions)} reductions"
    (reduction,) = reductions
    how: Reduction = reduction.data
    terms = product(e for e in how.extents if not isinstance(e, Scalar))
    if not all(isinstance(e, int) for e in how.extents) or not isinstance(terms, int):
        return "the number of elements that it reduces is not known"
    if terms > _LONGEST:
        return f"{terms} elements are more than {_LONGEST}"
    if reduction.dtype not in FLOATS | INTEGERS:
        return f"it reduces {reduction.dtype.to_string()}"
    body = reduction.args[0]
    if any(n.op in ("where", "gather", "reduce") for n in nodes_of(body)):
        # gcc 12 takes the condition of the first of several conditional loads for all
        return "its reads depend on conditions or on data"
    names = dict(zip(map(str, statement.params), parameters(len(statement.params)), strict=True))
    value = substitute(replace_parts(statement.value, {id(reduction): _terms(reduction)}), names)
    return Computation(
        label=statement.label,
        target=statement.target,
        index=tuple(rename(i, names) for i in statement.index),
        params=parameters(len(statement.params)),
        extents=statement.extents,
        value=value,
    )


def _terms(reduction: Scalar) -> Scalar:
    """The reduction as one expression, in the order of its loops."""
    how: Reduction = reduction.data
    total = identity(how.operator, reduction.dtype)
    for place in itertools.product(*(range(int(e)) for e in how.extents)):  # pyright: ignore[reportArgumentType]
        at = dict(zip(map(str, how.params), place, strict=True))
        term = cast(substitute(reduction.args[0], at), reduction.dtype)
        extremum = how.operator in ("max", "min")
        first = extremum and not any(place)  # the larger one of -inf and x is x, NaN included
        total = term if first else apply(_OPERATIONS.get(how.operator, how.operator), total, term)
    return total
