"""Sums over leading dimensions, in the order of memory: rows are added in turn to runs of columns.

s[j] = sum over k of x[k, j] is one loop over k for every j in the canonical form, and x is read column by
column. Here a lane holds a run of columns, and goes through the rows: memory is read as it lies, and the loop
over the run vectorises. Gradients of biases and scales, and statistics of channels, are such sums.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import dace
import sympy
from dace.sdfg import nodes

from daceml.sdfg.builder import Builder, Computation, parameters
from daceml.sdfg.lifting import NotLiftable, Statement, lift
from daceml.sdfg.nest import Loop, Nest, Write, emit_nest, loop_parameters, points, start
from daceml.sdfg.network import Network
from daceml.sdfg.passes import PassRecord
from daceml.sdfg.scalar import Index, Reduction, Scalar, read
from daceml.sdfg.scalar_rewrite import free_names, nodes_of, replace_parts, substitute
from daceml.sdfg.scopes import remove_scope, scope_nodes, top_maps
from daceml.sdfg.sizes import product
from daceml.sdfg.tasklet_code import find_reductions

# Columns of one lane: enough to vectorise, few enough that the sums stay in the nearest cache.
_SHORTEST, _LONGEST = 16, 64
# Fewer rows than this are as quick one column at a time.
_FEWEST_ROWS = 16


@dataclass(frozen=True, kw_only=True)
class _Columns:
    """A statement that sums columns: `target[…, j] = final(sum over k of body)`."""

    statement: Statement
    reduction: Scalar
    places: tuple[str, ...]


def sum_columns(network: Network) -> int:
    """Rewrite the sums of columns among the top-level maps; returns how many. Mutates the SDFG."""
    sdfg, state = network.sdfg, network.state
    scopes = state.scope_dict()
    access = {n.data: n for n in state.data_nodes() if scopes[n] is None}
    # all found before anything changes, after which DaCe would look at every node again
    candidates = [entry for entry in top_maps(state) if _reduces(state, entry)]
    summed = {
        entry: found for entry in candidates if (found := _lifted(sdfg, state, entry, access)) is not None
    }
    builder = Builder(sdfg, state, access)
    for entry, found in summed.items():
        remove_scope(state, entry)
        sums = _emit(builder, found)
        network.absorb(sums, (found.statement.target,))
    count = len(summed)
    applied = {"sum_columns": count} if count else {}
    network.passes.append(PassRecord(level="layout", name="sum_columns", applied=applied))
    return count


def _reduces(state: dace.SDFGState, entry: nodes.MapEntry) -> bool:
    """Whether a scope holds just one further map, which may be a reduction."""
    return sum(isinstance(n, nodes.MapEntry) for n in scope_nodes(state, entry)) == 2


def _lifted(
    sdfg: dace.SDFG, state: dace.SDFGState, entry: nodes.MapEntry, outside: Collection[str]
) -> _Columns | None:
    try:
        return _columns(sdfg, lift(sdfg, state, entry, outside))
    except NotLiftable:
        return None


def _columns(sdfg: dace.SDFG, statements: Sequence[Statement]) -> _Columns | None:
    if len(statements) != 1 or statements[0].resolves is not None:
        return None
    (statement,) = statements
    reductions = find_reductions(statement.value)
    if len(reductions) != 1 or reductions[0].data.operator != "sum":
        return None
    how: Reduction = reductions[0].data
    box = {str(p) for p in statement.params}
    if any(isinstance(e, Scalar) or free_names(e) & box for e in how.extents):
        return None  # a triangle, or a segment whose length is data
    rows = product(e for e in how.extents if not isinstance(e, Scalar))
    if isinstance(rows, int) and rows < _FEWEST_ROWS:
        return None
    places = _places(sdfg, statement)
    if not places or not isinstance(_extent(statement, places[-1]), int):
        return None
    inner = {str(p) for p in how.params}
    if not _reads_rows(sdfg, reductions[0].args[0], places[-1], inner):
        return None
    return _Columns(statement=statement, reduction=reductions[0], places=places)


def _extent(statement: Statement, name: str) -> Index:
    return next(e for p, e in zip(statement.params, statement.extents, strict=True) if str(p) == name)


def _places(sdfg: dace.SDFG, statement: Statement) -> tuple[str, ...]:
    """The parameter of each dimension of the target that has more than one element; () if it is not so."""
    shape = sdfg.arrays[statement.target].shape
    names: list[str] = []
    extents = {str(p): e for p, e in zip(statement.params, statement.extents, strict=True)}
    for index, size in zip(statement.index, shape, strict=True):
        if size == 1:
            continue
        if not isinstance(index, sympy.Symbol) or str(extents.get(str(index))) != str(size):
            return ()
        names.append(str(index))
    left = [p for p, e in extents.items() if e != 1 and p not in names]
    return tuple(names) if len(set(names)) == len(names) and not left else ()


def _reads_rows(sdfg: dace.SDFG, body: Scalar, last: str, inner: set[str]) -> bool:
    """Whether memory lies along the columns in every read that follows the rows, and is read once."""
    along = False
    for node in nodes_of(body):
        if node.op == "gather":
            return False
        if node.op != "read":
            continue
        array, indices = node.data
        desc = sdfg.arrays[array]
        names = set().union(*map(free_names, indices))
        if not names & inner:
            continue
        fast = [
            i
            for i, stride, n in zip(indices, desc.strides, desc.shape, strict=True)
            if stride == 1 and n != 1
        ]
        inside = set().union(*map(free_names, fast)) if fast else set()
        if last in names:
            if inside != {last}:
                return False
            along = True
        elif names - inner:
            return False
    return along


def _emit(builder: Builder, columns: _Columns) -> str:
    """Sums of columns, and what is made of them; returns the array of the sums."""
    statement, reduction = columns.statement, columns.reduction
    how: Reduction = reduction.data
    extents = tuple(_extent(statement, name) for name in columns.places)
    sums, _ = builder.sdfg.add_transient(
        f"{statement.target}_sums", extents, reduction.dtype, find_new_name=True
    )
    emit_nest(builder, _nest(sums, columns, how, extents))
    places = dict(zip(columns.places, parameters(len(extents)), strict=True))
    total = read(sums, reduction.dtype, parameters(len(extents)), extents)
    names: dict[str, Index] = {str(p): 0 for p in statement.params}
    names |= places
    builder.emit(
        Computation(
            label=statement.label,
            target=statement.target,
            index=tuple(places.get(str(i), 0) for i in statement.index),
            params=parameters(len(extents)),
            extents=extents,
            value=substitute(replace_parts(statement.value, {id(reduction): total}), names),
        )
    )
    return sums


def _nest(sums: str, columns: _Columns, how: Reduction, extents: tuple[Index, ...]) -> Nest:
    """Lanes of runs of columns; each adds up the rows in their order."""
    width = extents[-1]
    run = next((n for n in range(_LONGEST, _SHORTEST - 1, -1) if width % n == 0), min(width, _LONGEST))
    outer = points(len(extents))
    rest = run if width % run == 0 else sympy.Min(run, width - outer[-1] * run)
    rows = loop_parameters(len(how.params), len(how.params) + 1)
    (place,) = loop_parameters(0, 1)
    names: dict[str, Index] = {str(p): 0 for p in columns.statement.params}
    names |= dict(zip(columns.places, (*outer[:-1], outer[-1] * run + rows[-1]), strict=True))
    names |= dict(zip(map(str, how.params), rows[:-1], strict=True))
    dtype = columns.reduction.dtype
    body = substitute(columns.reduction.args[0], names).astype(dtype)
    name = f"{sums}_run"
    added = Write(target=name, index=(rows[-1],), value=body, operator="sum")
    total = read(name, dtype, (place,), (run,))
    written = Write(target=sums, index=(*outer[:-1], outer[-1] * run + place), value=total)
    return Nest(
        label=f"{columns.statement.label}_columns",
        params=outer,
        extents=(*extents[:-1], -(-width // run)),
        loops=(
            start(name, (run,), dtype, "sum"),
            Loop(params=rows, extents=(*how.extents, rest), writes=(added,), sequential=len(how.params)),
            Loop(params=(place,), extents=(rest,), writes=(written,)),
        ),
        local={name: ((run,), dtype)},
    )
