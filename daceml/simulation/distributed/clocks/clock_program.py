"""Offset and drift of clocks as a linear program on the ends of collectives and on causality."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from daceml.errors import AlignmentError
from daceml.simulation.distributed.clocks.clock_estimates import Clocks, Hosts
from daceml.simulation.distributed.clocks.timings import Floats, Timings

Ints = NDArray[np.int64]
Term = tuple[Ints, Floats]  # a column and a coefficient for each row

_CERTAIN_US = 10.0  # added to durations: how well short collectives end together at best
_CAUSAL_WEIGHT = 10.0  # of what ends before it began, against what merely ends apart


def solved(timings: Timings, host: Hosts, start: Clocks, *, drift: bool, causal: bool) -> Clocks:
    """Clocks near a first estimate such that ends of one communication coincide.

    Variables: for each host a correction of its offset and, with `drift`, of its speed (the first host keeps
    its own); for each communication k the moment c_k at which it ends; |end - c_k| of each member. With
    `causal` also a moment m_k of each joint one, no earlier than any start and no later than any end: two
    rows a member instead of one for each two of them. What breaks causality costs `_CAUSAL_WEIGHT` times as
    much as what ends apart, as timestamps are rounded. The ends of a communication that lasts long may differ
    by more, so weights are inverse to the shortest duration that a member saw.

    Args:
        timings: the communications to use; all have members on two hosts.
        start: first estimate, which need not be good to more than some seconds.
    Raises:
        AlignmentError: HiGHS did not find a solution.
    """
    from scipy.optimize import linprog  # heavy: only where clocks are aligned
    from scipy.sparse import coo_array

    seen = _Seen.of(timings, host, start, drift=drift)
    hosts, moments, ends = int(host.max()) + 1, len(timings), len(seen.k)
    first = hosts * (2 if drift else 1)
    ends_at, apart_at = first + seen.k, first + moments + np.arange(ends)
    shortest_us = np.nanmin(timings.end_us - timings.start_us, axis=1)
    weight = _CERTAIN_US / (np.maximum(shortest_us, 0.0) + _CERTAIN_US)
    rows = _Rows()
    everywhere = np.arange(ends)
    rows.add(-seen.end_us, *seen.clock(everywhere), _term(ends_at, -1.0), _term(apart_at, -1.0))
    rows.add(seen.end_us, *seen.clock(everywhere, -1.0), _term(ends_at, 1.0), _term(apart_at, -1.0))
    cost = [np.zeros(first + moments), weight[seen.k]]
    if causal:
        meets_from, early_from = first + moments + ends, first + 2 * moments + ends
        _add_causality(rows, timings, seen, meets_from, early_from)
        cost += [np.zeros(moments), _CAUSAL_WEIGHT * weight]
    costs = np.concatenate(cost)
    lower, upper = np.full(len(costs), -np.inf), np.full(len(costs), np.inf)
    lower[costs > 0] = 0.0  # only distances cost anything
    fixed = [0, hosts] if drift else [0]
    lower[fixed] = upper[fixed] = 0.0
    matrix = coo_array(
        (np.concatenate(rows.value), (np.concatenate(rows.row), np.concatenate(rows.column))),
        shape=(rows.count, len(costs)),
    ).tocsr()
    answer = linprog(
        costs, A_ub=matrix, b_ub=np.concatenate(rows.bound), bounds=np.stack([lower, upper], axis=1),
        method="highs-ipm",
    )  # fmt: skip
    if not answer.success:
        raise AlignmentError(
            "the clocks could not be aligned", why=str(answer.message), fix="align fewer communications"
        )
    correction_us = np.asarray(answer.x[:hosts], np.float64)
    faster_ppm = np.asarray(answer.x[hosts:first], np.float64) if drift else np.zeros(hosts)
    return Clocks(
        offset_us=start.offset_us + correction_us - faster_ppm * seen.middle_us * 1e-6,
        drift_ppm=start.drift_ppm + faster_ppm,
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class _Seen:
    """What members saw, by the estimated clocks and relative to the usual end of each communication.

    So numbers stay small beside the tolerances of the solver.

    Attributes:
        k, column: [e] communication and rank of each.
        host: [e] of that rank.
        seconds: [e] from the middle of the run, of its clock; None where clocks do not drift.
        hosts: how many there are.
    """

    k: Ints
    column: Ints
    host: Ints
    begin_us: Floats
    end_us: Floats
    middle_us: float
    seconds: Floats | None
    hosts: int

    @classmethod
    def of(cls, timings: Timings, host: Hosts, start: Clocks, *, drift: bool) -> _Seen:
        k, column = np.nonzero(timings.members)
        end_us = timings.end_us[k, column]
        middle_us = float(np.median(end_us)) if len(end_us) else 0.0
        offset_us = start.offsets(timings, host)
        zero_us = np.nanmedian(timings.end_us + offset_us, axis=1)
        shift_us = offset_us[k, column] - zero_us[k]
        return cls(
            k=k,
            column=column,
            host=host[column],
            begin_us=timings.start_us[k, column] + shift_us,
            end_us=end_us + shift_us,
            middle_us=middle_us,
            seconds=(end_us - middle_us) * 1e-6 if drift else None,
            hosts=int(host.max()) + 1,
        )

    def clock(self, at: NDArray[np.intp], sign: float = 1.0) -> list[Term]:
        """What corrects the clock of these: offset, and speed where clocks drift."""
        terms = [_term(self.host[at], sign)]
        if self.seconds is not None:
            terms.append((self.hosts + self.host[at], sign * self.seconds[at]))
        return terms


def _add_causality(rows: _Rows, timings: Timings, seen: _Seen, meets_from: int, early_from: int) -> None:
    """Joint ones end when all have begun; what is received ends no earlier than its send began."""
    joint = np.flatnonzero(timings.joint[seen.k])
    meets, early = meets_from + seen.k[joint], early_from + seen.k[joint]
    rows.add(-seen.begin_us[joint], *seen.clock(joint), _term(meets, -1.0), _term(early, -1.0))
    rows.add(seen.end_us[joint], *seen.clock(joint, -1.0), _term(meets, 1.0), _term(early, -1.0))
    paired = timings.sender[seen.k] >= 0
    sends = np.flatnonzero(paired & (timings.sender[seen.k] == seen.column))
    receives = np.flatnonzero(paired & (timings.sender[seen.k] != seen.column))
    # both in the order of their communications, which is that of `k`
    rows.add(
        seen.end_us[receives] - seen.begin_us[sends],
        *seen.clock(sends),
        *seen.clock(receives, -1.0),
        _term(early_from + seen.k[sends], -1.0),
    )


class _Rows:
    """Rows of a sparse matrix of inequalities, `coefficients @ variables <= bound`."""

    def __init__(self) -> None:
        self.row: list[Ints] = []
        self.column: list[Ints] = []
        self.value: list[Floats] = []
        self.bound: list[Floats] = []
        self.count = 0

    def add(self, bound: Floats, *terms: Term) -> None:
        """As many rows as there are bounds."""
        rows = np.arange(self.count, self.count + len(bound))
        for column, value in terms:
            self.row.append(rows)
            self.column.append(column)
            self.value.append(value)
        self.bound.append(bound)
        self.count += len(bound)


def _term(columns: Ints, value: float) -> Term:
    return columns, np.full(len(columns), value)
