"""Sums over rows of a reshaped array go through the array itself.

V = X as [a b, n];  s[j] = sum over k of V[k, j]   ->   s[j] = sum over k0, k1 of X[k0, k1, j]

A linear layer takes [batch, sequence, features] as a matrix, so the gradient of its bias is a sum over a view
of what the loop behind it writes. Over the array itself it shares that loop's rows, and fusion puts it beside
the gradients of a layer norm (the DaCeML paper, section 6.4). The standard recipe does without: where arrays
stay in the last cache, one loop takes as long as the two. To use it, write
`standard_recipe().before("fuse_subgraphs", sum_through_views)`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import dace
from dace.sdfg import nodes

from daceml.sdfg.builder import Builder, Computation, parameters, reduced_parameters
from daceml.sdfg.lifting import NotLiftable, Statement, arrays_outside, lift
from daceml.sdfg.network import Network
from daceml.sdfg.passes import PassRecord, refused_arrays
from daceml.sdfg.scalar import Index, Reduction, Scalar
from daceml.sdfg.scalar_rewrite import free_names, nodes_of, rename, replace_parts, substitute
from daceml.sdfg.scopes import exit_of, remove_scope
from daceml.sdfg.sizes import Size, product, row_major, size
from daceml.sdfg.tasklet_code import find_reductions


@dataclass(frozen=True, kw_only=True)
class View:
    """A view whose first dimension is several of its source.

    Attributes:
        leading: extents of those.
    """

    source: str
    leading: tuple[Size, ...]


class StaysApart(Exception):  # noqa: N818  (an answer, not an error)
    """Why a sum stays as it is."""


def sum_through_views(network: Network) -> int:
    """Let sums over rows of reshaped arrays read these arrays; returns how many. Mutates the SDFG."""
    sdfg, state = network.sdfg, network.state
    outside, scopes = arrays_outside(state), state.scope_dict()
    views = _views(sdfg, state)
    refused: dict[str, str] = {}
    count = 0
    for entry in [n for n in state.nodes() if isinstance(n, nodes.MapEntry) and scopes[n] is None]:
        if not any(edge.data.data in views for edge in state.in_edges(entry)):
            continue
        try:
            (statement,) = lift(sdfg, state, entry, outside)
            computation = through_views(statement, views)
        except (NotLiftable, ValueError):
            continue
        except StaysApart as reason:
            refused[str(state.out_edges(exit_of(state, entry))[0].data.data)] = str(reason)
            continue
        if computation is not None:
            remove_scope(state, entry)
            access = {n.data: n for n in state.data_nodes() if n.data in outside}
            Builder(sdfg, state, access).emit(computation)
            count += 1
    applied = {"sums through views": count} if count else {}
    network.passes.append(
        PassRecord(level="local", name="ViewSums", applied=applied, refused=refused_arrays(sdfg, refused))
    )
    return count


def _views(sdfg: dace.SDFG, state: dace.SDFGState) -> dict[str, View]:
    """Views of loops' results that join leading dimensions, where both arrays have one access node."""
    nodes_of_array: dict[str, list[nodes.AccessNode]] = {}
    for node in state.data_nodes():
        nodes_of_array.setdefault(node.data, []).append(node)
    found: dict[str, View] = {}
    for array, (node, *more) in nodes_of_array.items():
        edges = state.in_edges_by_connector(node, "views")
        source = next((e.src for e in edges if isinstance(e.src, nodes.AccessNode)), None)
        if more or source is None or len(nodes_of_array[source.data]) > 1:
            continue
        written = state.in_edges(source)
        leading = _leading(sdfg.arrays[source.data], sdfg.arrays[array])
        if leading and len(written) == 1 and isinstance(written[0].src, nodes.MapExit):
            found[array] = View(source=source.data, leading=leading)
    return found


def _leading(source: dace.data.Data, view: dace.data.Data) -> tuple[Size, ...]:
    """Dimensions of a source that are the first one of a view; () where they are not, or lie elsewhere."""
    shape, seen = tuple(map(size, source.shape)), tuple(map(size, view.shape))
    count = len(shape) - len(seen) + 1
    dense = all(
        tuple(map(str, desc.strides)) == tuple(map(str, row_major(map(size, desc.shape))))
        for desc in (source, view)
    )
    same = shape[count:] == seen[1:] and str(product(shape[:count])) == str(seen[0])
    return shape[:count] if count > 1 and dense and same and source.dtype == view.dtype else ()


def through_views(statement: Statement, views: Mapping[str, View]) -> Computation | None:
    """A sum over its sources; None where a statement is no sum over views.

    Raises:
        StaysApart: it goes through something else by the same rows.
    """
    reductions = find_reductions(statement.value)
    if len(reductions) != 1 or statement.resolves or any(isinstance(i, Scalar) for i in statement.index):
        return None
    (total,) = reductions
    how: Reduction = total.data
    reads = [n for n in nodes_of(total.args[0]) if n.op == "read" and n.data[0] in views]
    rows = {
        str(n.data[1][0]): views[n.data[0]].leading
        for n in reads
        if str(n.data[1][0]) in map(str, how.params)
    }
    if how.operator != "sum" or len(rows) != 1:
        return None
    ((row, leading),) = rows.items()
    place = [str(p) for p in how.params].index(row)
    if str(how.extents[place]) != str(product(leading)):
        return None
    for node in nodes_of(total.args[0]):
        if row in _names(node) and not _is_row(node, row, leading, views):
            raise StaysApart("what it adds up depends on the number of the row in other ways")
    params = reduced_parameters(len(how.params) + len(leading) - 1)
    split = params[place : place + len(leading)]
    others = [p for p in how.params if str(p) != row]
    names: dict[str, Index] = dict(
        zip(map(str, others), (*params[:place], *params[place + len(leading) :]), strict=True)
    )
    names |= dict(zip(map(str, statement.params), parameters(len(statement.params)), strict=True))
    parts = {
        id(n): Scalar("read", n.dtype, data=(views[n.data[0]].source, (*split, *n.data[1][1:])))
        for n in reads
        if str(n.data[1][0]) == row
    }
    terms = substitute(replace_parts(total.args[0], parts), names)
    extents = (*how.extents[:place], *leading, *how.extents[place + 1 :])
    new = Scalar("reduce", total.dtype, (terms,), replace(how, params=params, extents=extents))
    value = substitute(statement.value, names)
    (old,) = find_reductions(value)
    return Computation(
        label=statement.label,
        target=statement.target,
        index=tuple(rename(i, names) for i in statement.index),
        params=parameters(len(statement.params)),
        extents=statement.extents,
        value=replace_parts(value, {id(old): new}),
    )


def _names(node: Scalar) -> set[str]:
    """Parameters in the indices of one node."""
    if node.op == "index":
        return free_names(node.data)
    if node.op not in ("read", "gather"):
        return set()
    return set().union(*(free_names(i) for i in node.data[1] if i is not None))


def _is_row(node: Scalar, row: str, leading: tuple[Size, ...], views: Mapping[str, View]) -> bool:
    if node.op != "read" or node.data[0] not in views or views[node.data[0]].leading != leading:
        return False
    first, *rest = node.data[1]
    return str(first) == row and not any(row in free_names(i) for i in rest)
