"""NarrowSums: on a device, sums and products of float32 values, and of halves, are accumulated in float32.

acc: float64 = 0;  acc += float64(x[k]);  y = float32(acc / n)
    ->   acc: float32 = 0;  acc += x[k];  y = acc / n

A device has a half to a 64th as many units for float64, and a division of doubles is a call that costs
registers. A processor adds up in lanes, where float64 is free; a device adds up in threads, and joins what
they have in a tree: with n terms, T threads and eps = 2^-24, the sum is off by at most

    (n / T + log2 T) eps sum |x_k|

where one after the other would have n eps; errors of threads are independent, so what is usual is far less.
What is divided, or else computed, from such a sum is in float32 as well.

The mean of an array's own values keeps its accumulator: it is what statistics take off every value, so its
error counts beside the deviation, not beside the mean. It is rounded before it is divided. Of what is centred
float32 does: an error d of the mean is one of d^2 in the variance. Sums of more than 4,096 terms, or of an
unknown number, keep theirs, too: not every loop is divided among threads. What is float64 stays.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import dace
from dace.sdfg import nodes

from daceml.sdfg.builder import Builder, Computation, parameters, reduced_parameters
from daceml.sdfg.lifting import NotLiftable, Statement, arrays_outside, lift
from daceml.sdfg.network import Network
from daceml.sdfg.passes import PassRecord, refused_arrays
from daceml.sdfg.scalar import HALF, Index, Reduction, Scalar, cast
from daceml.sdfg.scalar_rewrite import rebuilt, rename, substitute
from daceml.sdfg.scopes import exit_of, remove_scope, scope_nodes, top_maps
from daceml.sdfg.sizes import product, size
from daceml.sdfg.tasklet_code import find_reductions

# One thread that adds up as many is off by 2^-12 of them at most, and by 2^-18 as a rule.
MOST_TERMS = 4096

_NARROW = frozenset({dace.float32, *HALF})


def narrow_sums(network: Network) -> int:
    """Accumulate float32 and narrower values in float32; returns in how many loops. Mutates the SDFG."""
    sdfg, state = network.sdfg, network.state
    outside, access, several = arrays_outside(state), dict[str, nodes.AccessNode](), set[str]()
    scopes = state.scope_dict()
    for node in [n for n in state.data_nodes() if scopes[n] is None]:
        several |= {node.data} & access.keys()
        access[node.data] = node
    refused: dict[str, str] = {}
    count = 0
    for entry in top_maps(state):
        if not _accumulates_wide(state, entry):
            continue
        edges = (*state.in_edges(entry), *state.out_edges(exit_of(state, entry)))
        target = str(edges[-1].data.data)
        try:
            computation = _narrowed(sdfg, lift(sdfg, state, entry, outside))
            if any(edge.data.data in several for edge in edges):
                computation = "one of its arrays is written in place"
        except NotLiftable as reason:
            computation = str(reason)
        if isinstance(computation, str):
            refused[target] = computation
            continue
        remove_scope(state, entry)
        Builder(sdfg, state, access).emit(computation)
        count += 1
    applied = {"sums in float32": count} if count else {}
    network.passes.append(
        PassRecord(level="local", name="NarrowSums", applied=applied, refused=refused_arrays(sdfg, refused))
    )
    return count


def _accumulates_wide(state: dace.SDFGState, entry: nodes.MapEntry) -> bool:
    inside = (n for n in scope_nodes(state, entry) if isinstance(n, nodes.AccessNode))
    return any(state.sdfg.arrays[n.data].dtype == dace.float64 for n in inside)


def _narrowed(sdfg: dace.SDFG, statements: Sequence[Statement]) -> Computation | str:
    """The computation with its accumulator in float32, or why it stays."""
    if len(statements) != 1 or statements[0].resolves is not None:
        return "it has more than one assignment"
    (statement,) = statements
    if any(isinstance(i, Scalar) for i in statement.index):
        return "it writes at positions that depend on data"
    if sdfg.arrays[statement.target].dtype == dace.float64:
        return "its result is float64"
    reductions = find_reductions(statement.value)
    if len(reductions) != 1:
        return f"it has {len(reductions)} reductions"
    (total,) = reductions
    terms = _exact(total.args[0])
    if terms.dtype not in _NARROW:
        return f"its terms are {terms.dtype.to_string()}"
    if _is_mean_of_values(statement.value, total) or not _few(total.data):
        narrow = cast(total, dace.float32)
    else:
        narrow = Scalar("reduce", dace.float32, (cast(terms, dace.float32),), total.data)
    how: Reduction = total.data
    names: dict[str, Index] = {}
    names |= zip(map(str, statement.params), parameters(len(statement.params)), strict=True)
    names |= zip(map(str, how.params), reduced_parameters(len(how.params)), strict=True)
    return Computation(
        label=statement.label,
        target=statement.target,
        index=tuple(rename(i, names) for i in statement.index if not isinstance(i, Scalar)),
        params=parameters(len(statement.params)),
        extents=statement.extents,
        value=substitute(_with_total(statement.value, total, narrow), names),
    )


def _is_mean_of_values(value: Scalar, total: Scalar) -> bool:
    value, terms = _plain(value), _plain(total.args[0])
    return value.op == "div" and value.args[0] is total and terms.op == "read"


def _few(how: Reduction) -> bool:
    """Whether the terms are few even for one thread, which some loops leave all of them to."""
    extents = [extent for extent in how.extents if not isinstance(extent, Scalar)]
    count = product(map(size, extents)) if len(extents) == len(how.extents) else None
    return isinstance(count, int) and count <= MOST_TERMS


def _plain(value: Scalar) -> Scalar:
    """A value without conversions around it."""
    while value.op == "cast":
        (value,) = value.args
    return value


def _exact(value: Scalar) -> Scalar:
    """A value before it was widened."""
    while value.op == "cast" and value.dtype == dace.float64 and value.args[0].dtype in _NARROW:
        (value,) = value.args
    return value


def _in_float32(value: Scalar) -> Scalar:
    value = _exact(value)
    return replace(value, dtype=dace.float32) if value.op == "index" else cast(value, dace.float32)


def _with_total(value: Scalar, total: Scalar, narrow: Scalar) -> Scalar:
    """The value with another total, and with all that was float64 because of the total in float32."""

    def narrowed(node: Scalar, args: tuple[Scalar, ...]) -> Scalar:
        if all(a is b for a, b in zip(args, node.args, strict=True)):
            return node
        dtype = dace.float32 if node.dtype == dace.float64 else node.dtype
        if node.op == "cast":
            return cast(args[0], dtype)
        args = tuple(_in_float32(a) if a.dtype == dace.float64 else a for a in args)
        return replace(node, dtype=dtype, args=args)

    return rebuilt(value, narrowed, {id(total): narrow})
