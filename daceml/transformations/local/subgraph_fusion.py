"""fuse_subgraphs: maps that share iterations become one nest, whose parts hand values over in registers and
small local arrays.

A softmax is a maximum, exponentials, a sum and a quotient of each row: four maps over different boxes, which
share the rows. Joined, a row is read once. Which maps join is decided greedily, the pair first that saves the
most bytes.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import dace
from dace.sdfg import nodes

from daceml.onnx_ops.external import draws_in_order
from daceml.sdfg.builder import Builder
from daceml.sdfg.lanes import in_lanes
from daceml.sdfg.lifting import NotLiftable, arrays_outside
from daceml.sdfg.nest import Loop, Nest, Write, emit_chunks, emit_nest
from daceml.sdfg.network import Network
from daceml.sdfg.passes import ELSEWHERE, PassRecord, by_place, refused_arrays
from daceml.sdfg.row_merging import merge_rows
from daceml.sdfg.scalar import Index
from daceml.sdfg.scalar_rewrite import nodes_of
from daceml.sdfg.scopes import exit_of, scope_nodes
from daceml.sdfg.sizes import product, size
from daceml.sdfg.warp_tiling import chunks_over_threads, over_threads
from daceml.transformations.local.equal_accumulations import merge_equal_accumulations
from daceml.transformations.local.fused_nest import nest_of
from daceml.transformations.local.fusion_graph import Unit, UnitGraph, stands_between
from daceml.transformations.local.fusion_groups import Group, group_of, hands_over
from daceml.transformations.local.fusion_judge import LOCAL_BYTES, MOST_MEMBERS, SMALL_BYTES, Joined, Judge
from daceml.transformations.local.members import Member, members_of
from daceml.transformations.local.point_values import read_points_once
from daceml.transformations.local.row_chunks import device_chunks, device_threads
from daceml.transformations.local.row_sums import (
    ColumnSum,
    alone,
    beside,
    column_sum,
    in_chunks,
    side_by_side,
)
from daceml.transformations.local.shared_launches import share_launches
from daceml.transformations.local.shared_values import keep_shared_values
from daceml.transformations.local.simplification import simplified

# Sizes that are symbols count as this many
_EXAMPLE_SIZE = 64
_MOST_ROUNDS = 4


@dataclass
class SubgraphFusionReport:
    """What happened.

    Attributes:
        fused: how many maps are in a nest with others.
        absorbed: array that a nest writes -> the arrays that disappeared into that nest.
        refused: array -> why its writer and a reader stayed apart.
        sums: how many sums of columns are part of a loop over rows.
        places: arrays through which maps joined, and those whose only map was written anew.
        simplified: rule -> to how many values it applied.
    """

    fused: int = 0
    absorbed: dict[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    refused: dict[str, str] = field(default_factory=dict[str, str])
    sums: int = 0
    simplified: Counter[str] = field(default_factory=Counter[str])
    places: list[str] = field(default_factory=list[str])


@by_place
def fuse_subgraphs(
    network: Network, *, most_members: int = MOST_MEMBERS, threads: bool = False
) -> SubgraphFusionReport:
    """Join maps wherever that saves bytes, and add up in lanes. Mutates the network's SDFG.

    Args:
        most_members: computations in one nest.
        threads: for a device: rows are divided among threads, not lanes.
    """
    fusion = _Fusion(network, most_members, threads=threads)
    fusion.join()
    fusion.take_sums()
    everywhere = network.places is None  # what shares a launch has no array in common
    launches = share_launches(fusion.graph, fusion.judge, fusion.sums) if threads and everywhere else 0
    report = fusion.rewrite()
    counts = {
        "fuse_subgraphs": report.fused,
        "sums next to rows": report.sums,
        "launches of independent loops": launches,
    }
    fused = {what: count for what, count in counts.items() if count}
    left = {array: reason for array, reason in report.refused.items() if array in network.sdfg.arrays}
    network.passes.append(
        PassRecord(
            level="local",
            name="fuse_subgraphs",
            applied={**fused, **report.simplified},
            refused=refused_arrays(network.sdfg, left),
            places=tuple(dict.fromkeys(report.places)),
        )
    )
    return report


class _Fusion:
    def __init__(self, network: Network, most_members: int, *, threads: bool) -> None:
        self.threads = threads
        self.network, self.sdfg, self.state = network, network.sdfg, network.state
        self.report = SubgraphFusionReport()
        self.outside = arrays_outside(self.state)
        self.access = self._single_access()
        self.indices = frozenset(check.array for check in network.checks)
        self.kept = self._kept()
        self.judge = Judge(self.sdfg, _EXAMPLE_SIZE, most_members)
        self.sums: dict[Unit, list[ColumnSum]] = {}
        self.graph = UnitGraph(self.state, self._group, draws_in_order(network))
        # looked up before anything changes, after which DaCe would look at every node again
        self.inside = {
            scope: scope_nodes(self.state, scope)
            for unit in self.graph.units
            if unit.group
            for scope in unit.scopes
        }

    def _single_access(self) -> dict[str, nodes.AccessNode]:
        """Arrays with one access node outside scopes; others are written in place, and left alone."""
        found: dict[str, nodes.AccessNode] = {}
        several: set[str] = set()
        scopes = self.state.scope_dict()
        for node in self.state.data_nodes():
            if scopes[node] is None:
                if node.data in found:
                    several.add(node.data)
                found[node.data] = node
        return {array: node for array, node in found.items() if array not in several}

    def _kept(self) -> set[str]:
        """Arrays that exist whatever reads them."""
        network = self.network
        kept = {*network.outputs, *network.mutations, *self.indices}
        for array, desc in self.sdfg.arrays.items():
            node = self.access.get(array)
            lasts = not desc.transient or isinstance(desc, dace.data.View)
            if lasts or node is None or self.state.in_degree(node) != 1:
                kept.add(array)
        return kept

    def _group(self, entry: nodes.MapEntry) -> Group | None:
        state = self.state
        arrays = [e.data.data for e in (*state.in_edges(entry), *state.out_edges(exit_of(state, entry)))]
        if any(array is not None and array not in self.access for array in arrays):
            return None
        try:
            members = members_of(self.sdfg, state, entry, self.outside)
        except NotLiftable as reason:
            for edge in state.out_edges(exit_of(state, entry)):
                self.report.refused[str(edge.data.data)] = str(reason)
            return None
        targets = [m.target for m in members]
        if len(set(targets)) < len(targets) or any(not _covers(m) for m in members):
            return None
        return group_of(members)

    def join(self) -> None:
        """Join units, the pair that saves the most bytes first, until nothing more is saved."""
        for _ in range(_MOST_ROUNDS):
            joined_into: dict[Unit, Unit] = {}
            changed = False
            for array, first, second in self._pairs():
                one, other = _alive(joined_into, first), _alive(joined_into, second)
                if one is other:
                    continue
                found = self._joined(one, other)
                if isinstance(found, str):
                    self._refuse(one, other, found)
                    continue
                if not self.network.may_change(array):
                    self.report.refused.setdefault(array, ELSEWHERE)
                    continue
                self.report.places.append(array)
                self.graph.merge(one, other, found.group)
                joined_into[other] = one
                changed = True
            if not changed:
                return

    def _pairs(self) -> list[tuple[str, Unit, Unit]]:
        """An array with its writer and reader, or two readers; the largest array first."""
        found: list[tuple[int, int, str, Unit, Unit]] = []
        for unit in self.graph.units:
            if unit.array is None or unit.array not in self.access:
                continue
            amount = self.judge.bytes_of(unit.array)
            writers = sorted((u for u in unit.before if u.group is not None), key=lambda u: u.place)
            readers = sorted((u for u in unit.after if u.group is not None), key=lambda u: u.place)
            pairs = [(w, r) for w in writers for r in readers]
            if amount >= SMALL_BYTES:
                pairs += itertools.pairwise(readers)
            found += [(-amount, n, unit.array, a, b) for n, (a, b) in enumerate(pairs)]
        found.sort(key=lambda p: (p[0], p[3].place, p[4].place, p[1]))
        return [(array, a, b) for _, _, array, a, b in found]

    def _joined(self, first: Unit, second: Unit) -> Joined | str:
        if first.group is None or second.group is None:
            return "one of them cannot be fused with others"
        if stands_between(first, second) or stands_between(second, first):
            return "another step depends on one of them and the other depends on it"
        if first.group.written.keys() & second.group.written.keys():
            return "both write the same array"
        forward, backward = hands_over(first.group, second.group), hands_over(second.group, first.group)
        if forward and backward:
            return "each needs a result of the other"
        return self._joined_in_order(second, first) if backward else self._joined_in_order(first, second)

    def _joined_in_order(self, first: Unit, second: Unit) -> Joined | str:
        assert first.group is not None
        assert second.group is not None
        indices = self.indices & first.group.written.keys()
        if any(array in member.reads for array in indices for member in second.group.members):
            return "its elements are indices, which are checked before use"
        vanishing: set[str] = set()
        for array in (*first.group.written, *second.group.written):
            if array in self.kept or array not in self.access:
                continue
            unit = first.array_behind(array) or second.array_behind(array)
            if unit is not None and unit.after <= {first, second}:
                vanishing.add(array)
        return self.judge.joined(first.group, second.group, vanishing)

    def _refuse(self, one: Unit, other: Unit, reason: str) -> None:
        for unit in one.after & other.before:
            if unit.array is not None:
                self.report.refused.setdefault(unit.array, reason)

    def take_sums(self) -> None:
        """Put sums of columns beside what goes through the same rows, the largest array first."""
        for unit in sorted(self.graph.units, key=lambda u: u.place):
            found = column_sum(self.sdfg, unit.group)
            if found is None or len(unit.scopes) > 1:
                continue
            if not self.network.may_change(found.result.target):
                self.report.refused.setdefault(found.result.target, ELSEWHERE)
                continue
            reasons: list[str] = []
            for host in self._hosts(unit, found):
                group = self._beside(host, unit, found)
                if not isinstance(group, str):
                    self.graph.merge(host, unit, group)
                    self.sums.setdefault(host, []).append(found)
                    self.report.places.append(found.result.target)
                    break
                reasons.append(group)
            else:
                group = alone(self.judge, found)
                if isinstance(group, str):
                    self.report.refused.setdefault(found.result.target, (*reasons, group)[0])
                else:
                    unit.group = group
                    self.sums[unit] = [found]
                    self.report.places.append(found.result.target)

    def _hosts(self, unit: Unit, found: ColumnSum) -> list[Unit]:
        """Groups that write or read what a sum is over."""
        arrays = [u for u in unit.before if u.array in found.terms.reads and u.array in self.access]
        arrays.sort(key=lambda u: (-self.judge.bytes_of(str(u.array)), u.place))
        hosts: dict[Unit, None] = {}
        for array in arrays:
            near = sorted((u for u in array.before | array.after if u.group), key=lambda u: u.place)
            hosts |= dict.fromkeys(u for u in near if u is not unit)
        return [u for u in hosts if u in self.sums or column_sum(self.sdfg, u.group) is None]

    def _beside(self, host: Unit, unit: Unit, found: ColumnSum) -> Group | str:
        assert host.group is not None
        if stands_between(host, unit) or stands_between(unit, host):
            return "another step depends on one of them and the other depends on it"
        if unit.after & host.before:
            return "the rows read the sum"
        totals = {other.result.target for other in self.sums.get(host, ())}
        if any(array.array in totals for array in unit.before & host.after):
            return "it reads another sum over these rows, which is complete only after the last row"
        return beside(self.judge, host.group, found)

    def rewrite(self) -> SubgraphFusionReport:
        """Put the nests of the groups where their maps were."""
        builder = Builder(self.sdfg, self.state, dict(self.access))
        for unit in self.graph.units:
            group = unit.group
            if group is None:
                continue
            needed = {m.target for m in group.members if self._is_needed(m.target, unit)}
            plain, simplifications = _simplified(nest_of(self.sdfg, group, needed))
            once = merge_equal_accumulations(keep_shared_values(plain, LOCAL_BYTES))
            sums = self.sums.get(unit, [])
            nest = once if sums and self.threads else self._divided(once)
            same = not simplifications and _extents(nest) == _extents(plain)
            if len(unit.scopes) == 1 and not sums:
                targets = [m.target for m in group.members]
                if same or not all(map(self.network.may_change, targets)):
                    continue
                self.report.places += targets
            nest = read_points_once(nest)
            self.report.simplified.update(simplifications)
            vanished = [m.target for m in group.members if m.target in self.access and m.target not in needed]
            for scope in unit.scopes:
                self._remove(scope)
            for array in vanished:
                self.state.remove_node(self.access[array])
                del builder.access[array]
                self.sdfg.remove_data(array, validate=False)
            if sums:
                self._emit_chunks(builder, nest, sums)
                self.report.sums += len(sums)
            elif needed:  # else nobody reads what the group computes
                emit_nest(builder, nest)
            if len(unit.scopes) > 1:
                self.report.fused += len(unit.scopes)
            for target in sorted((*needed, *(found.result.target for found in sums))):
                self.report.absorbed[target] = tuple(vanished)
                self.network.absorb(target, vanished)
        return self.report

    def _emit_chunks(self, builder: Builder, nest: Nest, sums: list[ColumnSum]) -> None:
        device = {"run": 1, "most": max(device_chunks(found.shape) for found in sums)} if self.threads else {}
        chunks, totals = in_chunks(self.sdfg, nest, sums, **device)
        if self.threads:
            tiled = chunks_over_threads(chunks, self._contiguous(chunks.nest))
            chunks = chunks if isinstance(tiled, str) else tiled
            # a launch costs more than a few columns
            totals = [self._shares_divided(total) for total in side_by_side(totals)]
        emit_chunks(builder, chunks)
        for total in totals:
            emit_nest(builder, total)

    def _shares_divided(self, total: Nest) -> Nest:
        """The total of every column with its shares divided among threads, where they are many."""
        shares = max(int(loop.extents[-1]) for loop in total.loops if loop.sequential)
        tiled = over_threads(total, threads=device_threads(shares, total.extents))
        return total if isinstance(tiled, str) else tiled

    def _divided(self, nest: Nest) -> Nest:
        """With rows in lanes, or divided among threads where they are long enough."""
        if not self.threads:
            return in_lanes(self.sdfg, merge_rows(nest, self._contiguous(nest)))
        tiled = over_threads(nest, self._contiguous(nest))
        return nest if isinstance(tiled, str) else tiled

    def _contiguous(self, nest: Nest) -> dict[str, Sequence[Index]]:
        """Shapes of the network's arrays in a nest that have no gaps."""
        values = (node for loop in nest.loops for write in loop.writes for node in nodes_of(write.value))
        read = {node.data[0] for node in values if node.op in ("read", "gather")}
        arrays = read | {write.target for loop in nest.loops for write in loop.writes}
        known = {a: self.sdfg.arrays[a] for a in arrays - nest.local.keys() if a in self.sdfg.arrays}
        return {a: desc.shape for a, desc in known.items() if desc.is_packed_c_strides()}

    def _is_needed(self, target: str, unit: Unit) -> bool:
        if target not in self.access:
            return False
        if target in self.kept:
            return True
        array = unit.array_behind(target)
        return array is not None and bool(array.after)

    def _remove(self, entry: nodes.MapEntry) -> None:
        inside = self.inside[entry]
        registers = {n.data for n in inside if isinstance(n, nodes.AccessNode)}
        self.state.remove_nodes_from(inside)
        for array in registers:
            self.sdfg.remove_data(array, validate=False)


def _extents(nest: Nest) -> list[tuple[Index, ...]]:
    """Of the points of a nest, and of each of its loops."""
    return [nest.extents, *(loop.extents for loop in nest.loops)]


def _simplified(nest: Nest) -> tuple[Nest, list[str]]:
    """A nest with simpler values, and the rules that made them so."""
    applied: list[str] = []
    loops: list[Loop] = []
    for loop in nest.loops:
        writes: list[Write] = []
        for write in loop.writes:
            value, rules = simplified(write.value)
            applied += rules
            writes.append(replace(write, value=value))
        loops.append(replace(loop, writes=tuple(writes)))
    return (replace(nest, loops=tuple(loops)), applied) if applied else (nest, applied)


def _covers(member: Member) -> bool:
    """Whether every element of the target is written."""
    return str(product(map(size, member.extents))) == str(product(map(size, member.shape)))


def _alive(joined: dict[Unit, Unit], unit: Unit) -> Unit:
    while unit in joined:
        unit = joined[unit]
    return unit
