"""The parts of the benchmark: which rows each has, how one is made, and what they are judged by."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.bars import Bar
from benchmarks.explore import cases, efficacy, judged, predicted, quickness

Row = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Options:
    """What a run was asked for.

    Attributes:
        only: networks; empty is all.
        steps: file for costs and times of steps; see `profiles.py`.
    """

    quick: bool
    only: frozenset[str] = frozenset()
    steps: Path | None = None


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One row: its title, the network that it is of, and how it is made."""

    title: str
    network: str
    make: Callable[[], Row]


@dataclass(frozen=True, kw_only=True)
class Part:
    """One part.

    Attributes:
        entries: of its rows, in the order in which they are made.
        judge: bars over those that were made.
    """

    entries: Callable[[Options], Iterator[Entry]]
    judge: Callable[[Sequence[Row]], list[Bar]]

    def chosen(self, options: Options) -> list[Entry]:
        """The rows that were asked for."""
        return [one for one in self.entries(options) if not options.only or one.network in options.only]


def _variants(options: Options) -> Iterator[Entry]:
    for case in cases.cases(quick=options.quick):
        make = partial(predicted.case_row, case, options.steps)
        yield Entry(title=case.title, network=case.name, make=make)


def _effects(options: Options) -> Iterator[Entry]:
    for name in efficacy.NETWORKS[:1] if options.quick else efficacy.NETWORKS:
        yield Entry(title=f"effects, {name}", network=name, make=partial(efficacy.network_row, name))


def _exploration(options: Options) -> Iterator[Entry]:
    if not options.quick:
        yield Entry(title="exploration, bert", network="bert", make=quickness.exploration_row)


PARTS = {
    "variants": Part(entries=_variants, judge=judged.judged),
    "effects": Part(entries=_effects, judge=efficacy.judged),
    "exploration": Part(entries=_exploration, judge=quickness.judged),
}
