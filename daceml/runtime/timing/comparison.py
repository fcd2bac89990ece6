"""Programs timed side by side: rounds in which each runs for a while, ratios within rounds."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Protocol

import torch

from daceml.garbage_collection import without_collection
from daceml.interval import Median, median_interval
from daceml.runtime.timing.machine_load import Others, crowded

ROUNDS = 21
"""Clean rounds: the interval goes from the fifth smallest ratio to the fifth largest, and holds the true
median with 99 %."""
_CONFIDENCE = 0.99
FEWEST_ROUNDS = 8
"""Below, no interval of a median reaches 99 %."""
_PATIENCE = 2  # times as many rounds until the cleanest ones are taken
FOREIGN_LIMIT = 0.10
"""Of the machine, that others may use while something is measured."""
_SLICE_S = 0.01  # of each program in a round, in batches of which the median counts
_BATCH_S = 0.001
_MOST_CALLS = 1024


def disturbing(share: float) -> bool:
    """Whether others who use a share of the machine, from 0 to 1, take cores from torch's threads."""
    return share > FOREIGN_LIMIT and crowded(share, torch.get_num_threads())


class Run(Protocol):
    """A program with everything that a call of it needs."""

    def __call__(self) -> object:
        """Run once."""

    def reset(self) -> None:
        """Put back what calls have changed."""


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Milliseconds of a call in each round that counts, by name.

    Attributes:
        foreign_share: of the machine, that others used in the median of these rounds, from 0 to 1.
    """

    rounds: tuple[Mapping[str, float], ...]
    foreign_share: float = 0.0

    @property
    def disturbed(self) -> bool:
        """Whether others disturbed most of the rounds."""
        return disturbing(self.foreign_share)

    def ms(self, name: str) -> float:
        """The median."""
        return median_interval([round_[name] for round_ in self.rounds]).value

    def ratio(self, name: str, over: str) -> Median:
        """How many times longer one takes than another, round by round."""
        return median_interval([r[name] / r[over] for r in self.rounds], confidence=_CONFIDENCE)


def compare(
    runs: Mapping[str, Run],
    *,
    limit_s: float = float("inf"),
    enough: Callable[[Comparison], bool] = lambda _: False,
    clock: Callable[[], float] = time.perf_counter,
) -> Comparison:
    """Time programs in turn, in another order each round; rounds that others disturbed are left out.

    Where the machine is never quiet the least disturbed rounds are taken: then the interval is wide.

    Args:
        limit_s: seconds after which no round begins, once there are `FEWEST_ROUNDS`.
        enough: ends the measurement after as many rounds; it may look at how bad something is, but not at how
            good, which would choose the rounds that it likes.
    """
    calls = {name: _calls(run, clock) for name, run in runs.items()}
    found: list[tuple[float, Mapping[str, float]]] = []
    end = clock() + limit_s
    for number in range(ROUNDS * _PATIENCE):
        others = Others()
        with without_collection():
            order = random.Random(number).sample(list(runs), len(runs))
            times = {name: _slice_ms(runs[name], calls[name], clock) for name in order}
        found.append((others.share(), times))
        if sum(share <= FOREIGN_LIMIT for share, _ in found) >= ROUNDS:
            break
        if len(found) >= FEWEST_ROUNDS and (clock() >= end or enough(_quietest(found))):
            break
    return _quietest(found)


def _quietest(found: Sequence[tuple[float, Mapping[str, float]]]) -> Comparison:
    """The clean rounds, or as many of the others as an interval needs, the least disturbed first."""
    ordered = sorted(found, key=lambda entry: entry[0])  # stable: of equally quiet ones the first
    clean = sum(share <= FOREIGN_LIMIT for share, _ in found)
    count = min(max(clean, len(found) // 2, FEWEST_ROUNDS), ROUNDS)
    taken = ordered[:count]
    share = median(share for share, _ in taken)
    return Comparison(rounds=tuple(times for _, times in taken), foreign_share=share)


def _calls(run: Run, clock: Callable[[], float]) -> int:
    """How many calls make a batch."""
    run.reset()
    run()
    calls = 1
    while calls < _MOST_CALLS and _batch_s(run, calls, clock) < _BATCH_S:
        calls *= 2
    return calls


def _slice_ms(run: Run, calls: int, clock: Callable[[], float]) -> float:
    """Milliseconds of a call, after one that brings the program back into the caches."""
    run.reset()
    run()
    batches: list[float] = []
    end = clock() + _SLICE_S
    while not batches or clock() < end:
        batches.append(_batch_s(run, calls, clock))
    return median(batches) * 1e3 / calls


def _batch_s(run: Run, calls: int, clock: Callable[[], float]) -> float:
    start = clock()
    for _ in range(calls):
        run()
    return clock() - start
