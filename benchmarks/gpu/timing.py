"""Times of several ways to do one thing on a device, in turn within one process, as ratios within rounds.

One process, because a device is shared by all that run: whatever its clock does, it does to every way of a
round. Times come from the device's own events, so what else the processor does moves only ways that wait for
it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from statistics import median
from typing import Any

from benchmarks.gpu.case import Case
from benchmarks.gpu.reasons import reason_of
from benchmarks.gpu.target import Target
from benchmarks.rounds import MINIMUM_ROUNDS, Measurement, Slice, order_of_round
from daceml.interval import as_json

Step = Callable[[], object]
# (step, calls) -> microseconds per call
BatchClock = Callable[[Step, int], float]

ROUNDS = 12
BATCH_US = 10_000.0  # of a batch of calls: events resolve half a microsecond
BATCHES = 3  # in a slice, which is their median
MOST_CALLS = 2000
OURS = "daceml"
GRAPHS = "_graphs"  # what the names of ways end with that capture graphs themselves
# What a user of torch has instead; ways with other names are ceilings or variations of ours.
PEERS = ("eager", "inductor", "max_autotune")


def rounds_of(case: Case) -> int:
    """How many rounds a case is measured for."""
    return MINIMUM_ROUNDS if case.quick or case.emulated else ROUNDS


def measure(
    ways: Mapping[str, Callable[[], Step]],
    clock: BatchClock,
    *,
    rounds: int = ROUNDS,
    needed: tuple[str, ...] = (OURS,),
    batch_us: float = BATCH_US,
) -> Measurement:
    """Build every way, then time all of them in every round, in an order that turns.

    Args:
        ways: what builds a step; the step runs twice before it is timed.
        needed: ways whose failure is an error; another one that fails is missing, with its reason.
    """
    calls: dict[str, int] = {}
    steps: dict[str, Step] = {}
    missing: dict[str, str] = {}
    for name, build in ways.items():
        try:
            step = build()
            step()
            calls[name] = calls_per_batch(step, clock, batch_us)
        except Exception as error:
            if name in needed:
                raise
            missing[name] = reason_of(error)
        else:
            steps[name] = step
    done: list[Mapping[str, Slice]] = []
    for number in range(rounds):
        entry: dict[str, Slice] = {}
        for name in order_of_round(tuple(steps), number):
            steps[name]()  # others have used the caches since
            samples = [clock(steps[name], calls[name]) for _ in range(BATCHES)]
            entry[name] = Slice(duration_us=median(samples), foreign=0.0)
        done.append(entry)
    return Measurement(names=tuple(steps), rounds=tuple(done), missing=missing)


def calls_per_batch(step: Step, clock: BatchClock, batch_us: float) -> int:
    """How many calls make a batch of about this length."""
    once_us = max(clock(step, 1), 0.1)
    return max(1, min(MOST_CALLS, round(batch_us / once_us)))


def measured_twice(
    ways: Mapping[str, Callable[[], Step]], target: Target, *, rounds: int
) -> dict[str, Measurement]:
    """Ways as they are called (`calls`), and as replays of a captured graph (`replays`).

    Calls have what the processor needs for each launch in them, replays have nothing but kernels.
    """
    steps: dict[str, Step] = {}

    def built(name: str) -> Step:
        steps[name] = ways[name]()
        return steps[name]

    def replayed(name: str) -> Step:
        return target.replay(steps[name])

    calls = measure({name: lambda name=name: built(name) for name in ways}, target.batch_us, rounds=rounds)
    replays = measure(
        # what replays a graph itself is none to capture
        {name: lambda name=name: replayed(name) for name in calls.names if not name.endswith(GRAPHS)},
        target.batch_us,
        rounds=rounds,
        needed=(),
    )
    return {"calls": calls, "replays": replays}


def best_peer(measurement: Measurement) -> str | None:
    """The fastest of torch's own ways."""
    peers = [name for name in measurement.names if name in PEERS]
    return min(peers, key=lambda name: measurement.duration_us(name).value) if peers else None


def row_of(measurement: Measurement) -> dict[str, Any]:
    """Every round, and what follows from them: ratios above 1 say that daceml is faster."""
    row = measurement.to_data()
    if OURS not in measurement.names:
        return row
    row |= measurement.row(OURS)
    row["rounds"] = measurement.to_data()["rounds"]
    if (best := best_peer(measurement)) is not None:
        row |= {"best_peer": best, "speedup": as_json(measurement.ratio(best, OURS))}
    return row
