"""Statistics of long rows in one sweep: mean and variance, maximum and sum of exponentials.

A softmax or a normalization reduces a row, and reduces it again with the result. Where rows do not stay in a
near cache, both are done chunk by chunk (`chunked_rows.py`), and the row is read once for the two.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import dace
import networkx as nx
from dace.sdfg import nodes

from daceml.sdfg.builder import Builder
from daceml.sdfg.lifting import NotLiftable, Statement, arrays_outside, lift
from daceml.sdfg.nest import points
from daceml.sdfg.network import Network
from daceml.sdfg.passes import PassRecord, refused_arrays
from daceml.sdfg.scalar import HALF, Index, Reduction, Scalar
from daceml.sdfg.scalar_rewrite import free_names, nodes_of, rename, replace_parts, substitute
from daceml.sdfg.scopes import remove_scope
from daceml.sdfg.tasklet_code import find_reductions
from daceml.transformations.local.chunked_rows import ChunkedRows, Pair, Reduced, element_parameters
from daceml.transformations.local.row_statistics import First, shifts_of

# Elements of a chunk: 16 KiB of float32, which stay in the nearest cache while they are read again
CHUNK = 4096
_FEWEST_CHUNKS = 4
# So many rows keep all threads busy: then fusion makes one loop over rows of all that is done with a row
_MANY_ROWS = 16
_MOST_INLINED = 4
_SHORTEST_RUN = 16


def sweep_rows_once(
    network: Network, *, many_rows: int = _MANY_ROWS, long_bytes: int | None = None, chunk: int = CHUNK
) -> int:
    """Reduce long rows in one sweep for two results of which one needs the other; returns how many pairs.

    Mutates the network's SDFG.

    Args:
        many_rows: fewer are worth it from four chunks on: chunks run in parallel.
        long_bytes: of rows that are worth it however many there are; None where none are.
        chunk: elements that are reduced twice in a row.
    """
    return _Sweeps(network, many_rows, long_bytes, chunk).run()


@dataclass(frozen=True, kw_only=True, eq=False)
class _Loop:
    """A top-level map that is one statement with at most one reduction."""

    entry: nodes.MapEntry
    statement: Statement
    reduction: Scalar | None


class _Refused(Exception):  # noqa: N818  (an answer, not an error)
    """Why a pair stays as it is."""


@dataclass(kw_only=True)
class _Row:
    """A reduction with the names of `chunked_rows`.

    Attributes:
        names: its own parameters -> those.
    """

    rows: tuple[Index, ...]
    elements: tuple[Index, ...]
    names: dict[str, Index] = field(default_factory=dict[str, Index])


class _Sweeps:
    def __init__(self, network: Network, many_rows: int, long_bytes: int | None, chunk: int) -> None:
        self.network, self.sdfg, self.state = network, network.sdfg, network.state
        self.many_rows, self.long_bytes, self.chunk = many_rows, long_bytes, chunk
        self.refused: dict[str, str] = {}
        self.access = self._single_access()
        self.kept = {*network.outputs, *network.mutations, *(check.array for check in network.checks)}
        self.writers = dict(self._loops())

    def _single_access(self) -> dict[str, nodes.AccessNode]:
        """Arrays with one access node outside scopes; others are written in place, and left alone."""
        scopes = self.state.scope_dict()
        outside = [n for n in self.state.data_nodes() if scopes[n] is None]
        times = Counter(n.data for n in outside)
        return {n.data: n for n in outside if times[n.data] == 1}

    def _loops(self) -> Iterator[tuple[str, _Loop]]:
        outside, scopes = arrays_outside(self.state), self.state.scope_dict()
        for entry in [n for n in self.state.nodes() if isinstance(n, nodes.MapEntry) and scopes[n] is None]:
            try:
                statements = lift(self.sdfg, self.state, entry, outside)
            except NotLiftable:
                continue
            if len(statements) != 1 or statements[0].resolves or statements[0].target not in self.access:
                continue
            (statement,) = statements
            reductions = find_reductions(statement.value)
            if len(reductions) < 2 and not any(isinstance(i, Scalar) for i in statement.index):
                reduction = reductions[0] if reductions else None
                yield statement.target, _Loop(entry=entry, statement=statement, reduction=reduction)

    def run(self) -> int:
        count = 0
        for target in list(self.writers):
            loop = self.writers.get(target)
            if loop is None or loop.reduction is None or loop.reduction.data.operator != "sum":
                continue
            try:
                found = self._pair(loop)
            except _Refused as reason:
                self.refused[target] = str(reason)
                continue
            if found is not None:
                self._rewrite(loop, *found)
                count += 1
        applied = {"statistics in one sweep": count} if count else {}
        left = {array: why for array, why in self.refused.items() if array in self.sdfg.arrays}
        refused = refused_arrays(self.sdfg, left)
        self.network.passes.append(
            PassRecord(level="local", name="sweep_rows_once", applied=applied, refused=refused)
        )
        return count

    def _pair(self, second: _Loop) -> tuple[Pair, _Loop, set[str]] | None:
        """The two reductions that the second one belongs to, with what it computes again; None where it is
        no second one.

        Raises:
            _Refused: they stay apart.
        """
        assert second.reduction is not None
        row = _row(second)
        terms = substitute(second.reduction.args[0], row.names)
        inlined: set[str] = set()
        for _ in range(_MOST_INLINED):
            for array in _arrays(terms):
                first = self.writers.get(array)
                if first is None or first.reduction is None or first is second:
                    continue
                pair = self._matched(first, second, row, terms)
                if pair is not None:
                    return pair, first, inlined
            terms, more = self._inlined(terms)
            if not more:
                return None
            inlined |= more
        return None

    def _inlined(self, terms: Scalar) -> tuple[Scalar, set[str]]:
        """Terms with what elementwise loops write in place of what is read."""
        parts: dict[int, Scalar] = {}
        found: set[str] = set()
        for node in nodes_of(terms):
            loop = self.writers.get(node.data[0]) if node.op == "read" else None
            if loop is None or loop.reduction is not None:
                continue
            statement = loop.statement
            params = [str(p) for p in statement.params]
            if len(statement.index) != len(params) or params != [str(i) for i in statement.index]:
                continue
            parts[id(node)] = substitute(statement.value, dict(zip(params, node.data[1], strict=True)))
            found.add(statement.target)
        return (replace_parts(terms, parts), found) if parts else (terms, found)

    def _matched(self, first: _Loop, second: _Loop, row: _Row, terms: Scalar) -> Pair | None:
        """The pair of two reductions; None where their terms are no statistics.

        Raises:
            _Refused: they are, and stay apart.
        """
        assert first.reduction is not None
        of_first = _row(first)
        value = substitute(first.statement.value, of_first.names)
        values = First(
            target=first.statement.target,
            index=tuple(rename(i, of_first.names) for i in first.statement.index),
            result=value,
            total=find_reductions(value)[0],
            elements=of_first.elements,
        )
        shifts = shifts_of(values, terms)
        if shifts is None:
            return None
        kind, nodes_shifted = shifts
        if str((of_first.rows, of_first.elements)) != str((row.rows, row.elements)):
            raise _Refused("its two sums go through different rows")
        result = substitute(second.statement.value, row.names)
        (total,) = find_reductions(result)
        self._check(first, row, values.terms, _arrays(replace_parts(result, {id(total): values.total})))
        target = first.statement.target
        firsts = [n for v in (terms, result) for n in nodes_of(v) if n.op == "read" and n.data[0] == target]
        if any(str(n.data[1]) != str(values.index) for n in firsts):
            raise _Refused("it reads the result of other rows")
        return Pair(
            kind=kind,
            rows=tuple(int(e) for e in row.rows),
            elements=tuple(int(e) for e in row.elements),
            first=Reduced(
                label=first.statement.label, target=target, index=values.index, terms=values.terms,
                result=values.result, total=values.total,
            ),
            second=Reduced(
                label=second.statement.label, target=second.statement.target,
                index=tuple(rename(i, row.names) for i in second.statement.index),
                terms=terms, result=result, total=total,
            ),
            shifts=nodes_shifted,
            firsts=tuple(firsts),
        )  # fmt: skip

    def _check(self, first: _Loop, row: _Row, terms: Scalar, read: list[str]) -> None:
        """Whether one sweep pays and may be.

        Args:
            read: arrays that the two results need.
        Raises:
            _Refused: it does not.
        """
        if not all(isinstance(e, int) for e in (*row.rows, *row.elements)):
            raise _Refused("how long its rows are is known at run time only")
        rows, elements = math.prod(row.rows), math.prod(row.elements)
        width = max((self.sdfg.arrays[a].dtype.bytes for a in _arrays(terms)), default=0)
        if rows == 0 or elements < _FEWEST_CHUNKS * self.chunk:
            raise _Refused(f"{rows} rows of {elements * width} bytes stay in a near cache")
        if rows >= self.many_rows and (self.long_bytes is None or elements * width < self.long_bytes):
            raise _Refused(f"{rows} rows keep all threads busy, each in one loop with what follows")
        if self.sdfg.arrays[first.statement.target].dtype in HALF:
            raise _Refused("its first result is rounded to half precision")
        if row.elements[-1] < _SHORTEST_RUN or not self._lie_in_rows(terms, len(row.elements)):
            raise _Refused("its rows do not lie along memory")
        others = [a for a in read if a != first.statement.target]
        if any(a not in self.access for a in others):
            raise _Refused("it reads what is written in place")
        later = nx.descendants(self.state.nx, first.entry)
        if any(self.access[a] in later for a in others):
            raise _Refused("another step needs the first result and gives the second one its argument")

    def _lie_in_rows(self, terms: Scalar, count: int) -> bool:
        """Whether neighbours in a row are neighbours in memory, in what is read of a row."""
        last, along = str(element_parameters(count)[-1]), False
        for node in nodes_of(terms):
            if node.op == "gather":
                return False
            if node.op == "read":
                strides = self.sdfg.arrays[node.data[0]].strides
                far = [s for i, s in zip(node.data[1], strides, strict=True) if last in free_names(i)]
                if any(s != 1 for s in far):
                    return False
                along = along or bool(far)
        return along

    def _rewrite(self, second: _Loop, pair: Pair, first: _Loop, inlined: set[str]) -> None:
        state, target = self.state, pair.first.target
        for loop in (first, second):
            remove_scope(state, loop.entry)
            del self.writers[loop.statement.target]
        node = self.access[target]
        keep = self._is_needed(node)
        builder = Builder(self.sdfg, state, dict(self.access))
        origins = (pair.first.target, pair.second.target)
        for array in ChunkedRows(builder, pair, self.chunk, keep_first=keep).emit():
            self.network.absorb(array, origins)
        if not keep:
            self._forget(node)
        self._remove_unread(inlined)

    def _is_needed(self, node: nodes.AccessNode) -> bool:
        desc = self.sdfg.arrays[node.data]
        lasts = not desc.transient or isinstance(desc, dace.data.View) or node.data in self.kept
        return lasts or self.state.out_degree(node) > 0

    def _forget(self, node: nodes.AccessNode) -> None:
        self.state.remove_node(node)
        del self.access[node.data]
        self.sdfg.remove_data(node.data, validate=False)

    def _remove_unread(self, inlined: set[str]) -> None:
        """What only the second reduction read is not computed any more."""
        again = True
        while again:
            again = False
            for array in sorted(inlined & self.access.keys()):
                node = self.access[array]
                if self._is_needed(node):
                    continue
                remove_scope(self.state, self.writers.pop(array).entry)
                self._forget(node)
                again = True


def _row(loop: _Loop) -> _Row:
    """Parameters that have one value go; the others are named in their order."""
    assert loop.reduction is not None
    statement, how = loop.statement, loop.reduction.data
    assert isinstance(how, Reduction)
    row = _Row(rows=(), elements=())
    outer = list(zip(statement.params, statement.extents, strict=True))
    inner = list(zip(how.params, how.extents, strict=True))
    row.names = {str(p): 0 for p, e in (*outer, *inner) if e == 1}
    outer, inner = [(p, e) for p, e in outer if e != 1], [(p, e) for p, e in inner if e != 1]
    row.rows, row.elements = tuple(e for _, e in outer), tuple(e for _, e in inner)
    for some, params in ((outer, points(len(outer))), (inner, element_parameters(len(inner)))):
        row.names |= {str(p): name for (p, _), name in zip(some, params, strict=True)}
    return row


def _arrays(value: Scalar) -> list[str]:
    return list(dict.fromkeys(n.data[0] for n in nodes_of(value) if n.op in ("read", "gather")))
