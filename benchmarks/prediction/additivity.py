"""Is a network the sum of its operators? Each is measured from chains of copies, and so is the network.

    python -m benchmarks.prediction.additivity [--rounds 40] [--json FILE]

Operators and network are measured in turn by one process: in each round a chain of each length of everything.
Times are those of the thread, not of the wall: on a machine that others use, a thread that waits for a core is no
part of either. Two sums are told. "as placed": operands as far from the processor as the network leaves them
(`daceml.profiling.measuring.placement`), which is what the bar is about; "warm": every copy on the same operands,
which a database has.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.bars import Bar, report
from benchmarks.interleave import TUNED_ALLOCATOR

LIMIT = 0.05
ROUNDS = 40
_OPERATION_S, _NETWORK_S = 3e-3, 8e-3  # of the longest chains
_CHILD = "DACEML_ADDITIVITY_CHILD"


@dataclass(frozen=True, kw_only=True)
class Additivity:
    """A network beside the sum of its operators.

    Attributes:
        network_us: one pass.
        placed_us, warm_us: sums of counts times times.
        operators: names of those that differ.
        calls: of one pass.
        medians: the same three of medians over rounds, not of the fastest runs.
    """

    network: str
    network_us: float
    placed_us: float
    warm_us: float
    operators: tuple[str, ...]
    calls: int
    medians: tuple[float, float, float]

    @property
    def error(self) -> float:
        return abs(self.placed_us / self.network_us - 1)

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
            "medians_us": dict(zip(("network", "placed", "warm"), self.medians, strict=True)),
        }


def measured(name: str, *, rounds: int = ROUNDS) -> Additivity:
    """One network, in this process."""
    import torch

    from benchmarks.prediction.networks import FURTHER, NETWORKS
    from daceml.profiling.measuring.chains import forward_chain
    from daceml.profiling.measuring.placement import placed_calls
    from daceml.profiling.measuring.slopes import lengths
    from daceml.profiling.measuring.stopwatches import WallClock

    torch.manual_seed(0)
    with torch.no_grad():
        module, x = {**NETWORKS, **FURTHER}[name]()
        module.eval()
        clock = WallClock(clock_s=time.thread_time)
        calls = placed_calls(lambda: module(x))
        placed = [one.chain(clock).timed for one in calls]
        warm = [forward_chain(one.call, clock).timed for one in calls]

        def passes(count: int) -> float:
            start = time.thread_time()
            for _ in range(count):
                module(x)
            return time.thread_time() - start

        every = [*placed, *warm, passes]
        chains = [lengths(one, longest_s=_OPERATION_S) for one in every[:-1]]
        chains.append(lengths(passes, longest_s=_NETWORK_S))
        seen: list[dict[int, list[float]]] = [{copies: [] for copies in one} for one in chains]
        for number in range(rounds):
            for timed, times in zip(every, seen, strict=True):
                for copies in list(times)[:: -1 if number % 2 else 1]:
                    times[copies].append(timed(copies))
    counts = [one.count for one in calls]
    return Additivity(
        network=name,
        network_us=_fastest_s(seen[-1]) * 1e6,
        placed_us=_sum_us(counts, map(_fastest_s, seen[: len(calls)])),
        warm_us=_sum_us(counts, map(_fastest_s, seen[len(calls) : -1])),
        operators=tuple(sorted({one.call.operator.partition(".")[0] for one in calls})),
        calls=sum(counts),
        medians=(
            _median_s(seen[-1]) * 1e6,
            _sum_us(counts, map(_median_s, seen[: len(calls)])),
            _sum_us(counts, map(_median_s, seen[len(calls) : -1])),
        ),
    )


def additivity(*, rounds: int = ROUNDS, names: Sequence[str] | None = None) -> list[dict[str, Any]]:
    """A row for each network, each in a process of its own whose allocator keeps its memory."""
    from benchmarks.prediction.networks import FURTHER, NETWORKS

    environment = {**os.environ, **TUNED_ALLOCATOR, "OMP_NUM_THREADS": "1", _CHILD: "1"}
    rows: list[dict[str, Any]] = []
    for name in names or (*NETWORKS, *FURTHER):
        done = subprocess.run(
            [
                sys.executable,
                "-m",
                "benchmarks.prediction.additivity",
                "--one",
                name,
                "--rounds",
                str(rounds),
            ],
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
                note=""
                if row is None
                else f"sum {row['placed_us']:.0f} us of {row['calls']} calls, network {row['network_us']:.0f} us; "
                f"all operands warm: {row['warm_over_network'] - 1:+.1%}",
            )
        )
    operators = {one for row in found.values() for one in row["operators"]}
    made.append(
        Bar(
            name="operators short of 20",
            figure=max(0, 20 - len(operators)),
            limit=0,
            note=f"{len(operators)} measured",
        )
    )
    return made


def _fastest_s(times: Mapping[int, Sequence[float]]) -> float:
    """The slope through the fastest run of each length: others can only make a run longer."""
    from daceml.profiling.measuring.slopes import theil_sen

    return theil_sen([(copies, min(seen)) for copies, seen in times.items()])


def _median_s(times: Mapping[int, Sequence[float]]) -> float:
    from statistics import median

    from daceml.profiling.measuring.slopes import theil_sen

    rounds = zip(*times.values(), strict=True)
    return median(theil_sen(list(zip(times, one, strict=True))) for one in rounds)


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
        print(
            f"{row['network']}: network {row['network_us']:.0f} us, sum as placed {row['placed_over_network']:.3f}, "
            f"warm {row['warm_over_network']:.3f}; medians {row['medians_us']['placed'] / row['medians_us']['network']:.3f}"
        )
    if given.json:
        from benchmarks.machine import description

        given.json.write_text(json.dumps({"machine": description(), "rows": rows}, indent=2))
    return report(bars(rows))


if __name__ == "__main__":
    raise SystemExit(main())
