"""The same communication as each of its members saw it: by number where traces have one, else by order."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from daceml.errors import MatchingError
from daceml.simulation.distributed.clocks.timings import Timings
from daceml.simulation.distributed.communication import Communication, CommunicationKind, Group
from daceml.simulation.distributed.rank_run import RankRun

# What all members of one collective share: group, what it does, its number or its size; of a pair, its ends.
_Key = tuple[object, ...]


@dataclass(frozen=True, kw_only=True)
class Match:
    """One communication of several ranks.

    Attributes:
        order: how many of the same group, kind and size came before it.
        size_bytes: the largest that a member names; NaN where nobody knows.
        members: (column of the rank, index in its communications) of each; of a pair the sender first.
    """

    kind: CommunicationKind
    group: Group
    order: int
    size_bytes: float
    members: tuple[tuple[int, int], ...]


@dataclass(frozen=True, kw_only=True, eq=False)
class MatchedRun:
    """All ranks of a run, and what they communicated with each other.

    Attributes:
        matches: by the time at which their first member began.
        notes: what is left out, one sentence each.
    """

    ranks: tuple[RankRun, ...]
    matches: tuple[Match, ...]
    notes: tuple[str, ...] = ()

    @property
    def origin_us(self) -> float:
        """What the earliest clock shows where its trace begins: time zero of `timings`."""
        return min(run.first_us for run in self.ranks)

    @cached_property
    def timings(self) -> Timings:
        """When each member began and ended, by its own clock."""
        shape = len(self.matches), len(self.ranks)
        start_us, end_us = np.full(shape, np.nan), np.full(shape, np.nan)
        for row, match in enumerate(self.matches):
            for column, call in match.members:
                run = self.ranks[column]
                shift_us = run.first_us - self.origin_us
                start_us[row, column] = shift_us + run.communications[call].start_us
                end_us[row, column] = shift_us + run.communications[call].end_us
        senders = [
            match.members[0][0] if match.kind.point_to_point else -1 for match in self.matches
        ]  # fmt: skip
        return Timings(
            start_us=start_us,
            end_us=end_us,
            joint=np.array([match.kind.joint for match in self.matches], np.bool_),
            sender=np.array(senders, np.int64),
            family=_families(self.matches),
        )


def matched(runs: Iterable[RankRun]) -> MatchedRun:
    """Find for every communication what it was for the other members.

    Members of one group make their calls in one order. So the k-th of equal kind and size of one is the k-th
    of the others; where the trace numbers them, so do the numbers. A send belongs to the k-th receive of its
    two ranks. Of a group of which some ranks were not traced, those that were are joined.

    Raises:
        MatchingError: two runs of one rank; members that count otherwise; a send without its receive. The
            message names the rank and the call.
    """
    ranks = tuple(sorted(runs, key=lambda run: run.rank))
    numbers = [run.rank for run in ranks]
    if len(set(numbers)) < len(numbers):
        twice = next(rank for rank in numbers if numbers.count(rank) > 1)
        raise MatchingError(f"rank {twice} is there twice", fix="give one trace for each rank of one run")
    column_of = {rank: column for column, rank in enumerate(numbers)}
    notes: list[str] = []
    found = _collectives(ranks, column_of, notes) + _pairs(ranks, column_of, notes)
    found.sort(key=lambda match: _first_us(ranks, match))
    return MatchedRun(ranks=ranks, matches=tuple(found), notes=tuple(notes))


def _collectives(ranks: Sequence[RankRun], column_of: dict[int, int], notes: list[str]) -> list[Match]:
    seen: dict[tuple[_Key, int], dict[int, int]] = {}  # (key, k) -> column -> call
    counts: dict[_Key, dict[int, int]] = {}  # key -> column -> how many
    for column, run in enumerate(ranks):
        for call, one in enumerate(run.communications):
            if one.kind.point_to_point:
                continue
            key = _key(one)
            order = counts.setdefault(key, {}).get(column, 0)
            counts[key][column] = order + 1
            seen.setdefault((key, order), {})[column] = call
    missing: set[str] = set()
    found: list[Match] = []
    for (_, order), members in seen.items():
        column, call = next(iter(members.items()))
        one = ranks[column].communications[call]
        present = [column_of[rank] for rank in one.group.ranks if rank in column_of]
        if len(present) < len(one.group.ranks):
            missing.add(one.group.name)
        _check_complete(ranks, one, order, members, present)
        sizes = [ranks[c].communications[k].size_bytes for c, k in members.items()]
        found.append(
            Match(
                kind=one.kind, group=one.group, order=order, size_bytes=_largest(sizes),
                members=tuple(sorted(members.items())),
            )
        )  # fmt: skip
    notes += [f"some ranks of group {name!r} were not traced: no wait for them" for name in sorted(missing)]
    return found


def _key(one: Communication) -> _Key:
    if one.sequence is not None:
        return one.group, one.kind, "number", one.sequence
    known = one.kind.even and not math.isnan(one.size_bytes)
    return one.group, one.kind, "size", one.size_bytes if known else None


def _check_complete(
    ranks: Sequence[RankRun], one: Communication, order: int, members: dict[int, int], present: Sequence[int]
) -> None:
    """Refuse a call that some traced member of its group never made, with what that one did instead."""
    absent = [column for column in present if column not in members]
    if not absent:
        return
    who = ", ".join(str(ranks[column].rank) for column in sorted(members))
    lacking = ranks[absent[0]]
    theirs = [o for o in lacking.communications if o.group == one.group and not o.kind.point_to_point]
    ours = [
        o
        for o in ranks[next(iter(members))].communications
        if o.group == one.group and not o.kind.point_to_point
    ]
    place = next((k for k, (a, b) in enumerate(zip(ours, theirs, strict=False)) if _key(a) != _key(b)), None)
    if place is None:
        why = f"rank {lacking.rank} made {len(theirs)} calls in this group, the others {len(ours)}"
    else:
        theirs_there, ours_there = theirs[place].what, ours[place].what
        why = (
            f"call {place} of the group is {theirs_there} on rank {lacking.rank}, {ours_there} on the others"
        )
    number = f"number {one.sequence}" if one.sequence is not None else f"number {order} of its kind and size"
    raise MatchingError(
        f"rank {lacking.rank} never made the {one.what}, {number} in group {one.group.name!r}, of rank {who}",
        where=lacking.graph.source,
        why=why,
        fix="record the same steps on all ranks, from the same iteration on",
    )


def _pairs(ranks: Sequence[RankRun], column_of: dict[int, int], notes: list[str]) -> list[Match]:
    """The k-th send from one rank to another in a group is what its k-th receive takes in."""
    ends: dict[tuple[Group, int, int], tuple[list[int], list[int]]] = {}
    untraced = 0
    for run in ranks:
        for call, one in enumerate(run.communications):
            if not one.kind.point_to_point:
                continue
            if one.peer is None:
                raise MatchingError(
                    f"rank {run.rank}'s {one.what} does not say with which rank",
                    where=run.graph.source,
                    fix="record with record_shapes=True, which keeps the operator's inputs",
                )
            if one.peer not in column_of:
                untraced += 1
                continue
            sends = one.kind is CommunicationKind.SEND
            ordered = (run.rank, one.peer) if sends else (one.peer, run.rank)
            ends.setdefault((one.group, *ordered), ([], []))[0 if sends else 1].append(call)
    if untraced:
        notes.append(
            f"{untraced} sends and receives of ranks that were not traced stay as they were recorded"
        )
    found: list[Match] = []
    for (group, source, target), (sends, receives) in ends.items():
        if len(sends) != len(receives):
            raise MatchingError(
                f"rank {source} and rank {target} disagree about group {group.name!r}: sends to rank"
                f" {target} {len(sends)}, receives there {len(receives)}",
                where=ranks[column_of[target]].graph.source,
                fix="record the same steps on all ranks, from the same iteration on",
            )
        for order, (send, receive) in enumerate(zip(sends, receives, strict=True)):
            members = (column_of[source], send), (column_of[target], receive)
            sizes = [ranks[column].communications[call].size_bytes for column, call in members]
            found.append(
                Match(
                    kind=CommunicationKind.SEND, group=group, order=order, size_bytes=_largest(sizes),
                    members=members,
                )
            )  # fmt: skip
    return found


def _largest(sizes: Sequence[float]) -> float:
    known = [size for size in sizes if not math.isnan(size)]
    return max(known) if known else math.nan


def _first_us(ranks: Sequence[RankRun], match: Match) -> float:
    return min(ranks[c].first_us + ranks[c].communications[call].start_us for c, call in match.members)


def _families(matches: Sequence[Match]) -> NDArray[np.int64]:
    """[m] a number for each group, kind and size: those of one family take about as long as each other."""
    numbers: dict[_Key, int] = {}
    return np.array(
        [
            numbers.setdefault((match.group, match.kind, str(match.size_bytes), _pair(match)), len(numbers))
            for match in matches
        ],
        np.int64,
    )


def _pair(match: Match) -> tuple[int, ...]:
    return tuple(column for column, _ in match.members) if match.kind.point_to_point else ()
