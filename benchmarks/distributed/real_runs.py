"""Runs of two ranks over Gloo beside what was foretold of them: part "real_runs" of benchmarks.distributed.

Each rank is a process with one thread in a network namespace of its own; between them is a link whose
bandwidth Linux holds to what is asked. First the network's computation alone, all-reduces alone and one run
of DistributedDataParallel are recorded; then all is foretold; only then do the foretold runs begin, in turn.
"""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.bars import Bar
from benchmarks.distributed import shaped_link
from benchmarks.distributed.link_forecast import Link, as_sending, foretold_us, found, plan_of, step_of
from benchmarks.distributed.rank_processes import together
from benchmarks.distributed.real_networks import NETWORKS, Sending
from benchmarks.distributed.real_rank import Job, recording_folder
from benchmarks.distributed.real_replay import ERROR, recorded_runs, replay_row, typical_step
from daceml.interval import as_json, median_interval
from daceml.simulation.distributed.recorded_run import RecordedRun
from daceml.simulation.distributed.strategy.search import Found
from daceml.simulation.distributed.strategy.training_step import TrainingStep

PROGRAM = "benchmarks.distributed.real_rank"
GBIT = 1e9
SLOW = GBIT / 10
ASKED_ERROR = 0.10
GAIN = 0.05
DEFAULT = "default"
# what is asked of the run with torch's default buckets over the link of 1 Gbit/s
ASKED: Mapping[str, tuple[float, Sending]] = {
    "buckets of 1 MB": (GBIT, Sending(cap_mb=1)),
    "buckets of 5 MB": (GBIT, Sending(cap_mb=5)),
    "one bucket": (GBIT, Sending(cap_mb=1024)),
    "buckets in 4 parts": (GBIT, Sending(parts=4)),
    "half the bandwidth": (GBIT / 2, Sending()),
}
_SEARCH_S = 3.0
# a step over the slow link takes ten times as long, and differs less from round to round
_ROUNDS, _MANY_ROUNDS, _QUICK_ROUNDS = 12, 40, 6
_TIMEOUT_S = 600.0


def measured(folder: Path, *, quick: bool = False) -> tuple[list[dict[str, Any]], list[Bar]]:
    """All networks; `quick` leaves out 100 Mbit/s and four ranks, and takes fewer steps and rounds.

    Args:
        folder: of recorded data, none of which is needed.
    """
    del folder
    missing = shaped_link.why_not()
    rows: list[dict[str, Any]] = []
    for network in NETWORKS:
        if missing is None:
            rows += network_rows(network, quick=quick)
        else:
            rows += [{"case": case, "network": network, "missing": missing} for case in _CASES]
    if not quick:
        rows += [_four_ranks(network) for network in NETWORKS]
    return rows, judged(rows)


def network_rows(network: str, *, quick: bool) -> list[dict[str, Any]]:
    """Of the replay, of each question and of each link's strategy."""
    links = (GBIT,) if quick else (GBIT, SLOW)
    first = Job(
        what="observed",
        network=network,
        links=links,
        repeats=5 if quick else 9,
        recorded=4,
        recordings=3 if quick else 8,
    )
    with tempfile.TemporaryDirectory() as name, shaped_link.linked_namespaces() as prefixes:
        where = Path(name)
        seen = _run(first, where, prefixes)
        recorded = _recordings(first, where)
        foretold = _Foretold.of(seen, recorded, links)
        cells = foretold.cells()
        timed: list[_Timed] = []
        for number, cells in enumerate(foretold.cells()):
            own = where / f"timed{number}"
            own.mkdir()
            timed.append(_timed(network, cells, own, prefixes, quick=quick))
    rows = [{"case": "replay", **replay_row(recorded)}, *foretold.rows(timed)]
    return [{"network": network, **row} for row in rows]


Cells = dict[str, tuple[float, Sending]]


@dataclass(frozen=True, kw_only=True)
class _Timed:
    """What some cells took in turn.

    Attributes:
        rounds: microseconds of each; buckets: bytes that each sent, in their order.
    """

    rounds: list[dict[str, float]]
    buckets: dict[str, list[int]]


def _timed(
    network: str, cells: Cells, where: Path, prefixes: Sequence[Sequence[str]], *, quick: bool
) -> _Timed:
    rounds = _ROUNDS if all(rate == SLOW for rate, _ in cells.values()) else _MANY_ROUNDS
    job = Job(what="timed", network=network, cells=cells, rounds=_QUICK_ROUNDS if quick else rounds, steps=1)
    ranks = _run(job, where, prefixes)
    # a step ends when its last rank ends it
    both = zip(*(rank["rounds"] for rank in ranks), strict=True)
    return _Timed(
        rounds=[{name: max(rank[name] for rank in step) for name in cells} for step in both],
        buckets=ranks[0]["buckets"],
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class _Foretold:
    """What is known of a network before the foretold runs begin.

    Attributes:
        step: as it was recorded; links: by bits per second, without interference, which the step has in it.
        alone: its parts, timed alone; links_alone: with interference.
        searched: what the search found for each link.
    """

    step: TrainingStep
    links: Mapping[float, Link]
    alone: TrainingStep
    links_alone: Mapping[float, Link]
    searched: Mapping[float, Found]

    @classmethod
    def of(
        cls, seen: Sequence[dict[str, Any]], recorded: Sequence[RecordedRun], rates: Sequence[float]
    ) -> _Foretold:
        """From what each rank observed, and the recordings."""
        links_alone = {
            rate: Link.of([rank["table"][f"{rate:g}"] for rank in seen], f"{rate:g} bit/s") for rate in rates
        }
        links = {rate: dataclasses.replace(one, interference=0.0) for rate, one in links_alone.items()}
        step = typical_step(recorded, links[GBIT].table)
        return cls(
            step=step,
            links=links,
            alone=step_of([rank["chain"] for rank in seen]),
            links_alone=links_alone,
            searched={rate: found(step, link, budget_s=_SEARCH_S) for rate, link in links.items()},
        )

    def cells(self) -> list[Cells]:
        """What is to be timed, of each link by itself."""
        of_link: list[Cells] = []
        for rate, one in self.searched.items():
            asked = ASKED if rate == GBIT else {}
            of_link.append(
                {_default(rate): (rate, Sending()), **asked, _found(rate): (rate, as_sending(one))}
            )
        return of_link

    def rows(self, timed: Sequence[_Timed]) -> list[dict[str, Any]]:
        """The step with torch's default buckets, then of each question and of each strategy.

        Args:
            timed: each of `cells`.
        """
        rounds = timed[0].rounds
        by_step, by_alone = _ratios(self.step, self.links[GBIT]), _ratios(self.alone, self.links_alone[GBIT])
        step = {
            "case": "step",
            "foretold_us": _default_us(self.step, self.links[GBIT]),
            "foretold_alone_us": _default_us(self.alone, self.links_alone[GBIT]),
            "computing_us": self.alone.computing_us,
            "interference": self.links_alone[GBIT].interference,
            "measured_us": _median(rounds, DEFAULT),
            "buckets": timed[0].buckets[DEFAULT],
        }
        asked = [
            {
                "case": name,
                "foretold": by_step[name],
                "foretold_alone": by_alone[name],
                "measured": _ratio(rounds, name, DEFAULT),
                "buckets": timed[0].buckets[name],
            }
            for name in ASKED
        ]
        strategies = [
            {
                "case": _strategy(rate),
                "foretold": one.step_us / _default_us(self.step, self.links[rate]),
                "measured": _ratio(of.rounds, _found(rate), _default(rate)),
                "found_us": _median(of.rounds, _found(rate)),
                "default_us": _median(of.rounds, _default(rate)),
                "buckets": of.buckets[_found(rate)],
            }
            for (rate, one), of in zip(self.searched.items(), timed, strict=True)
        ]
        return [step, *asked, *strategies]


def _default_us(step: TrainingStep, link: Link) -> float:
    return foretold_us(step, plan_of(step, Sending()), link)


def _ratios(step: TrainingStep, link: Link) -> dict[str, float]:
    """Of each question: its step over that with torch's default buckets."""
    return {
        name: foretold_us(step, plan_of(step, sending), link.slower(GBIT / rate)) / _default_us(step, link)
        for name, (rate, sending) in ASKED.items()
    }


_CASES = ("replay", *ASKED, *(f"strategy at {link / 1e6:g} Mbit/s" for link in (GBIT, SLOW)))


def _strategy(link: float) -> str:
    return f"strategy at {link / 1e6:g} Mbit/s"


def _found(link: float) -> str:
    return f"found for {link / 1e6:g} Mbit/s"


def _default(link: float) -> str:
    return DEFAULT if link == GBIT else f"{DEFAULT} at {link / 1e6:g} Mbit/s"


def _four_ranks(network: str) -> dict[str, Any]:
    """A replay of more ranks than this machine may have cores for, over its own loopback: told, no bar."""
    job = Job(what="observed", network=network, links=(0.0,), repeats=2, recorded=6, recordings=1)
    with tempfile.TemporaryDirectory() as name:
        _run(job, Path(name), [()] * 4)
        return {"case": "replay", "network": network, **replay_row(_recordings(job, Path(name)))}


def _recordings(job: Job, where: Path) -> list[RecordedRun]:
    return recorded_runs([recording_folder(where, number) for number in range(job.recordings)])


def _run(job: Job, where: Path, prefixes: Sequence[Sequence[str]]) -> list[Any]:
    path = job.written(where / f"{job.what}.json")
    named = {"GLOO_SOCKET_IFNAME": shaped_link.INTERFACE} if any(prefixes) else {}
    program = (PROGRAM, str(path), str(where))
    return together(program, where, prefixes=prefixes, variables=named, timeout_s=_TIMEOUT_S)


def _ratio(rounds: Sequence[Mapping[str, float]], name: str, over: str) -> dict[str, float]:
    return as_json(median_interval([one[name] / one[over] for one in rounds]))


def _median(rounds: Sequence[Mapping[str, float]], name: str) -> dict[str, float]:
    return as_json(median_interval([one[name] for one in rounds]))


def judged(rows: Sequence[dict[str, Any]]) -> list[Bar]:
    """Replays of two ranks, answers to questions, and what strategies gain and never lose."""
    found: list[Bar] = []
    for row in rows:
        title, missing = f"2 ranks, {row['network']}", row.get("missing", "")
        if row["case"] == "replay" and row.get("ranks", 2) == 2:
            limit = max(ERROR, row.get("interval", 0.0))
            found.append(
                Bar(
                    name=f"{title}: replay off the steps without a profiler by",
                    figure=None if missing else abs(row["error"]), limit=limit,
                    note=missing or _replay_note(row),
                )
            )  # fmt: skip
        elif row["case"] in ASKED:
            error = None if missing else abs(row["foretold"] / row["measured"]["median"] - 1)
            found.append(
                Bar(
                    name=f"{title}, {row['case']}: effect off by", figure=error, limit=ASKED_ERROR,
                    note=missing or _ratio_note(row),
                )
            )  # fmt: skip
    return [*found, *_strategies(rows)]


def _strategies(rows: Sequence[dict[str, Any]]) -> list[Bar]:
    """The best case, and the number of those in which the default is faster beyond doubt."""
    seen = [row for row in rows if row["case"].startswith("strategy")]
    there = [row for row in seen if "missing" not in row]
    missing = next((row["missing"] for row in seen if "missing" in row), "")
    gains = [
        row["found_us"]["median"] / row["default_us"]["median"]
        for row in there
        if row["found_us"]["high"] < row["default_us"]["low"]
    ]
    notes = "; ".join(f"{row['network']}, {row['case']}: {_ratio_note(row)}" for row in there)
    return [
        Bar(
            name="strategy found over torch's default, best case with disjoint intervals",
            figure=min(gains, default=1.0) if there else None, limit=1 - GAIN, note=missing or notes,
        ),
        Bar(
            name="cases in which the strategy found loses to torch's default",
            figure=float(sum(row["measured"]["low"] > 1 for row in there)) if there else None,
            limit=0, note=missing or f"of {len(there)}",
        ),
    ]  # fmt: skip


def _replay_note(row: dict[str, Any]) -> str:
    return (
        f"recordings {', '.join(f'{error:+.1%}' for error in row['errors'])};"
        f" of profiled steps {row['profiled_error']:+.1%},"
        f" profiler {row['inflation'] - 1:+.1%};"
        f" {row['measured_us'] / 1e3:.1f} ms +- {row['interval']:.1%} of {row['steps']} steps"
    )


def _ratio_note(row: dict[str, Any]) -> str:
    ratio = row["measured"]
    alone = f" ({row['foretold_alone']:.3f} of its parts alone)" if "foretold_alone" in row else ""
    return (
        f"{row['foretold']:.3f} foretold{alone}, measured {ratio['median']:.3f}"
        f" [{ratio['low']:.3f}, {ratio['high']:.3f}] in {ratio['n']} rounds"
    )
