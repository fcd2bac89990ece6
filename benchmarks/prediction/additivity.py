"""Is a network the sum of its operators? Each is measured from chains of copies, and so is the network.

    python -m benchmarks.prediction.additivity [--rounds 40] [--json FILE]

Operators and network are measured in turn by one process: in each round a chain of each length of all.
Times are those of the thread, not of the wall: on a machine that others use, waiting for a core is no part
of either. Nor are runs that another interrupted, who leaves his data in the caches. Means of the others are
told, without the slowest eighth: means add up, where medians and fastest runs do not (a pass is rarely
undisturbed in all its parts at once).

Two sums are told. "placed": operands as far from the processor as the network leaves them
(`daceml.operations.measuring.placement`), which the bar is about; "warm": every copy on the same operands,
which a database has.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from benchmarks.bars import Bar, report
from benchmarks.interleave import TUNED_ALLOCATOR

if TYPE_CHECKING:
    from daceml.operations.measuring.batches import Timed

Times = dict[int, list[tuple[int, float]]]  # length -> how often another took the core, and seconds
LIMIT = 0.05
ROUNDS = 40
_OPERATION_S, _NETWORK_S = 3e-3, 8e-3  # of the longest chains
SECOND_CACHE_BYTES = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Additivity:
    """A network beside the sum of its operators.

    Attributes:
        network_us: one pass.
        placed_us, warm_us: sums of counts times times.
        operators: names of those that differ.
        calls: of one pass.
        quarters: the placed sum over the network, of each quarter of the rounds.
        alone: part of the network's runs that nobody interrupted.
    """

    network: str
    network_us: float
    placed_us: float
    warm_us: float
    operators: tuple[str, ...]
    calls: int
    quarters: tuple[float, ...]
    alone: float

    def as_json(self) -> dict[str, Any]:
        return {
            "network": self.network,
            "network_us": self.network_us,
            "placed_us": self.placed_us,
            "warm_us": self.warm_us,
            "placed_over_network": self.placed_us / self.network_us,
            "warm_over_network": self.warm_us / self.network_us,
            "operators": list(self.operators),
            "calls": self.calls,
            "quarters": list(self.quarters),
            "alone": self.alone,
        }


def measured(name: str, *, rounds: int = ROUNDS) -> Additivity:
    """One network, in this process."""
    import torch

    from benchmarks.prediction.networks import FURTHER, NETWORKS
    from daceml.operations.measuring.chains import forward_chain
    from daceml.operations.measuring.placement import placed_calls
    from daceml.operations.measuring.stopwatches import WallClock

    torch.manual_seed(0)
    with torch.no_grad():
        module, x = {**NETWORKS, **FURTHER}[name]()
        module.eval()
        clock = WallClock(clock_s=time.thread_time)
        calls = placed_calls(lambda: module(x))
        placed = [one.chains(clock, cache_bytes=SECOND_CACHE_BYTES) for one in calls]
        warm = [forward_chain(one.call, clock).timed for one in calls]

        def passes(count: int) -> float:
            start = time.thread_time()
            for _ in range(count):
                module(x)
            return time.thread_time() - start

        seen = _rounds([*placed, *((one, None) for one in warm), (passes, None)], rounds)
    counts = [one.count for one in calls]
    split = len(calls)

    def sums(begin: float, end: float) -> tuple[float, float, float]:
        times = [less(pair, begin, end) for pair in seen]
        return times[-1] * 1e6, _sum_us(counts, times[:split]), _sum_us(counts, times[split:-1])

    network_us, placed_us, warm_us = sums(0, 1)
    parts = [sums(quarter / 4, (quarter + 1) / 4) for quarter in range(4)]
    return Additivity(
        network=name,
        network_us=network_us,
        placed_us=placed_us,
        warm_us=warm_us,
        operators=tuple(sorted({one.call.operator.partition(".")[0] for one in calls})),
        calls=sum(counts),
        quarters=tuple(far / network for network, far, _ in parts),
        alone=fmean(not switches for times in seen[-1][0].values() for switches, _ in times),
    )


def _rounds(every: Sequence[tuple[Timed, Timed | None]], rounds: int) -> list[list[Times]]:
    """Seconds of each chain by its length, and of what is to be subtracted, in turn.

    The last one, the network, comes after each third of the others: a machine changes within a second.
    """
    from daceml.operations.measuring.slopes import lengths

    seen: list[list[Times]] = []
    for chain, _ in every:
        found = lengths(chain, longest_s=_NETWORK_S if chain is every[-1][0] else _OPERATION_S)
        seen.append([{copies: [] for copies in found} for _ in range(2)])
    last = len(every) - 1
    ends = {round(last * third / 3) - 1 for third in (1, 2, 3)}
    turns = [place for one in range(last) for place in ((one, last) if one in ends else (one,))]
    for number in range(rounds):
        for place in turns:
            pair, times = every[place], seen[place]
            for timed in pair:
                if timed is not None:
                    timed(next(iter(times[0])))  # the operator before it has left the caches to itself
            for copies in list(times[0])[:: -1 if number % 2 else 1]:
                for timed, into in zip(pair, times, strict=True):
                    if timed is not None:
                        before = _switches()
                        seconds = timed(copies)
                        into[copies].append((_switches() - before, seconds))
    return seen


def less(pair: Sequence[Times], begin: float, end: float) -> float:
    """Seconds of one copy, of a part of the rounds, less what its chains do beside it."""
    first, second = pair
    beside = _slope_s(second, begin, end) if any(second.values()) else 0.0
    return _slope_s(first, begin, end) - beside


def _slope_s(times: Times, begin: float, end: float) -> float:
    from daceml.operations.measuring.slopes import theil_sen

    return theil_sen(
        [
            (copies, _undisturbed(seen[int(begin * len(seen)) : int(end * len(seen))]))
            for copies, seen in times.items()
        ]
    )


def _undisturbed(seen: Sequence[tuple[int, float]]) -> float:
    """The mean of runs that nobody interrupted; where those are few, of the least interrupted third."""
    ordered = sorted(seen)
    alone = [seconds for switches, seconds in ordered if not switches]
    least = max(1, len(seen) // 3)
    kept = alone if len(alone) >= least else [seconds for _, seconds in ordered[:least]]
    return fmean(sorted(kept)[: max(1, len(kept) - len(kept) // 8)])


def _switches() -> int:
    return resource.getrusage(resource.RUSAGE_THREAD).ru_nivcsw


def additivity(*, rounds: int = ROUNDS, names: Sequence[str] | None = None) -> list[dict[str, Any]]:
    """A row for each network, each in a process of its own whose allocator keeps its memory."""
    from benchmarks.prediction.networks import FURTHER, NETWORKS

    environment = {**os.environ, **TUNED_ALLOCATOR, "OMP_NUM_THREADS": "1"}
    command = (sys.executable, "-m", "benchmarks.prediction.additivity")
    rows: list[dict[str, Any]] = []
    for name in names or (*NETWORKS, *FURTHER):
        done = subprocess.run(
            [*command, "--one", name, "--rounds", str(rounds)],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
            timeout=600,
        )
        rows.append(json.loads(done.stdout.splitlines()[-1]))
    return rows


def bars(rows: Iterable[Mapping[str, Any]]) -> list[Bar]:
    """5 % for each of the three networks, and 20 different operators in all."""
    from benchmarks.prediction.networks import NETWORKS

    found = {row["network"]: row for row in rows}
    made: list[Bar] = []
    for name in NETWORKS:
        row = found.get(name)
        made.append(
            Bar(
                name=f"{name}: sum of its operators, N/M, beside the network",
                figure=None if row is None else abs(row["placed_over_network"] - 1),
                limit=LIMIT,
                note="" if row is None else _note(row),
            )
        )
    operators = {one for row in found.values() for one in row["operators"]}
    short = max(0, 20 - len(operators))
    made.append(Bar(name="operators short of 20", figure=short, limit=0, note=f"{len(operators)} measured"))
    return made


def _note(row: Mapping[str, Any]) -> str:
    return (
        f"{row['placed_us']:.0f} us of {row['calls']} calls, network {row['network_us']:.0f} us; ratio "
        f"{row['placed_over_network']:.3f}, quarters of the rounds {min(row['quarters']):.3f} to "
        f"{max(row['quarters']):.3f}; warm {row['warm_over_network']:.3f}; "
        f"{row['alone']:.0%} of its runs alone"
    )


def _sum_us(counts: Sequence[int], times_s: Iterable[float]) -> float:
    return sum(count * one for count, one in zip(counts, times_s, strict=True)) * 1e6


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        from benchmarks.quiet import claim_priority

        claim_priority()
        print(json.dumps(measured(given.one, rounds=given.rounds).as_json()))
        return 0
    rows = additivity(rounds=given.rounds)
    for row in rows:
        print(f"{row['network']}: {_note(row)}")
    if given.json:
        from benchmarks.machine import description

        given.json.write_text(json.dumps({"machine": description(), "rows": rows}, indent=2))
    return report(bars(rows))


if __name__ == "__main__":
    raise SystemExit(main())
