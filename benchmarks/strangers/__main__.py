"""Models of other libraries: python -m benchmarks.strangers --part runs --check, or another part.

They need the extra `strangers`; `make strangers` installs it into an environment of its own. Models run in
processes that may crash or hang, several in each; rows are kept in a journal, and a run that was stopped
goes on.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import command
from benchmarks.bars import Bar
from benchmarks.children import Outcome, Tell, run_cases
from benchmarks.journal import Journal
from benchmarks.strangers.drawn import drawn, stranger
from benchmarks.strangers.models import MODELS
from benchmarks.strangers.torchvision_operators import declare_torchvision

if TYPE_CHECKING:
    from benchmarks.strangers.runs import Mode as RunMode

_LIMIT_S = 900.0
_LIBRARIES = (
    "benchmarks.strangers.runs",
    "transformers.modeling_utils",
    "torch_geometric.nn.models",
    "torchvision",
    "timm",
    "torchaudio.models",
)
_MODES: tuple[RunMode, ...] = ("evaluation", "training")  # evaluation is inference
_SHAPES = ("fixed", "dynamic")

Key = tuple[str, "RunMode", bool]


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parse(arguments)
    if options.part == "generation":
        return _generation(options)
    if options.part == "times":
        return _times(options)
    shapes = options.shapes or (_SHAPES[:1] if options.quick else _SHAPES)
    known = list(MODELS)
    if options.drawn is not None:
        _import_libraries()
        known = drawn(options.drawn, options.seed)
    chosen = [name for name in known if not options.models or any(word in name for word in options.models)]
    jobs: list[Key] = [
        (name, mode, shape == "dynamic")
        for name in chosen
        for shape in shapes
        for mode in options.modes or _MODES
    ]
    journal: Journal[Key] = Journal(options.journal, lambda row: (row["model"], row["mode"], row["dynamic"]))
    if options.again is not None:
        journal.forget([key for key, row in journal.rows.items() if row["kind"] in options.again])
    elif options.models or options.quick:
        journal.forget(jobs)
    waiting = [job for job in jobs if job not in journal.rows]
    if waiting:
        _import_libraries()

    def work(number: int, tell: Tell) -> None:
        import torch

        from benchmarks.strangers.runs import not_made, run

        torch.set_num_threads(1)
        name, mode, dynamic = waiting[number]
        try:
            model = MODELS.get(name) or stranger(name)
        except Exception as error:
            tell(not_made(name, mode, error, dynamic=dynamic).row())
        else:
            tell(run(model, mode, dynamic=dynamic).row())

    for outcome in run_cases(
        work, range(len(waiting)), processes=options.jobs, limit_s=_LIMIT_S, memory_bytes=24 << 30
    ):
        row = _row(waiting[outcome.case], outcome)
        journal.add(row)
        print(_line(row), flush=True)
    rows = [journal.rows[job] for job in jobs]
    if options.drawn is not None:
        made = [row for row in rows if row["kind"] != "not made"]
        return command.finish("strangers_drawn", options, rows, _bars(made, fewest=0))
    return command.finish("strangers", options, rows, _bars(rows))


def _generation(options: argparse.Namespace) -> int:
    from benchmarks.strangers.generation import CASES, bars, rows_of

    chosen = [case for case in CASES if not options.models or any(word in case[0] for word in options.models)]
    chosen = [case for case in chosen if not options.quick or case[0] == "llama"]
    rows = rows_of(chosen, processes=options.jobs, limit_s=_LIMIT_S)
    return command.finish("strangers_generation", options, rows, bars(rows))


def _times(options: argparse.Namespace) -> int:
    from benchmarks.peers import WAYS, Mode
    from benchmarks.strangers.timed_models import MODELS as TIMED
    from benchmarks.strangers.times import bars, comparison, row_of, times

    modes: tuple[Mode, ...] = ("inference", "training")
    words = options.models or (("mlp",) if options.quick else None)
    journal: Journal[tuple[str, str]] = Journal(options.journal, lambda row: (row["model"], row["mode"]))
    if unknown := set(options.peers or ()) - set(WAYS):
        sys.exit(f"--peers {' '.join(sorted(unknown))}: the peers are {', '.join(WAYS)}")
    rows: list[dict[str, Any]] = []
    for name in (model.name for model in TIMED if not words or any(word in model.name for word in words)):
        for mode in modes:
            if options.modes and (mode == "training") != ("training" in options.modes):
                continue
            if (row := journal.rows.get((name, mode))) is None:
                rounds, limit_s = (6, 10.0) if options.quick else (8, 40.0)
                row = row_of(
                    name, mode, times(name, mode, rounds=rounds, limit_s=limit_s, peers=options.peers)
                )
                journal.add(row)
            rows.append(row)
            print(comparison(row).line(), flush=True)
    return command.finish("strangers_times", options, rows, bars(rows))


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = command.parser("Run models of other libraries, compiled, next to eager PyTorch.")
    parser.add_argument(
        "--part", choices=("runs", "generation", "times"), default="runs", help="what models do"
    )
    parser.add_argument("--models", nargs="*", metavar="WORD", help="models with one of these words")
    parser.add_argument(
        "--drawn", type=int, metavar="COUNT", help="of runs: so many models drawn from whole libraries"
    )
    parser.add_argument("--seed", type=int, default=0, help="of --drawn: which models")
    parser.add_argument("--shapes", nargs="*", choices=_SHAPES, help="without it, both")
    parser.add_argument("--modes", nargs="*", choices=_MODES, help="without it, both")
    parser.add_argument(
        "--peers", nargs="*", metavar="NAME", help="of times: eager and these; without it, all"
    )
    parser.add_argument("--jobs", type=int, default=2, help="processes at once")
    parser.add_argument("--journal", type=Path, metavar="FILE",
                        help="rows that are known already; a run that was stopped goes on there")  # fmt: skip
    parser.add_argument("--again", nargs="*", metavar="KIND", help="run models of this outcome again")
    options = parser.parse_args(arguments)
    drawn_by = "" if options.drawn is None else f"-drawn-{options.seed}"
    options.journal = options.journal or Path(f"build/bench/strangers-{options.part}{drawn_by}.jsonl")
    return options


def _import_libraries() -> None:
    """Import once what every process needs: it takes as long as a model does."""
    declare_torchvision()
    for name in _LIBRARIES:
        import_module(name)


def _row(job: Key, outcome: Outcome) -> dict[str, Any]:
    """The row of one case; a crash or a timeout is one as well."""
    if outcome.told:
        return outcome.told
    name, mode, dynamic = job
    facts = {"model": name, "mode": mode, "dynamic": dynamic, "kind": "foreign", "note": outcome.end}
    counts = {"programs": 0, "compilations": 0, "compiled_flops": 0.0, "cut": False}
    return {**facts, **counts, "seconds": outcome.duration_s}


def _line(row: dict[str, Any]) -> str:
    shapes = "dynamic" if row["dynamic"] else "fixed"
    how = "one program" if row["programs"] == 1 else f"{row['programs']} programs"
    if row["compilations"] > row["programs"]:
        how += f", {row['compilations']} compilations"
    figures = f"{how}, {row['compiled_flops']:.0%} of FLOPs, {row['seconds']:.0f} s"
    return f"{row['model']:<36} {row['mode']:<10} {shapes:<7} {row['kind']:<8} {figures}  {row['note'][:150]}"


def _bars(rows: Sequence[dict[str, Any]], fewest: int = 60) -> list[Bar]:
    def count(kind: str) -> Bar:
        some = [f"{row['model']} {row['mode']}" for row in rows if row["kind"] == kind]
        return Bar(name=f"runs {kind}", figure=len(some), limit=0, note=", ".join(some[:3]))

    models = {row["model"] for row in rows}
    whole = {model for model in models if all(r["programs"] == 1 for r in rows if r["model"] == model)}
    again = [row["model"] for row in rows if row["compilations"] > row["programs"]]
    eager = [100 * (1 - row["compiled_flops"]) for row in rows]
    return [
        Bar(name=f"models short of {fewest}", figure=max(0, fewest - len(models)), limit=0),
        *map(count, ("not made", "refused", "foreign", "wrong")),
        Bar(name="models that are not one program", figure=len(models - whole), limit=len(models) // 6),
        Bar(
            name="runs compiled again for another size",
            figure=len(again),
            limit=len(rows) // 10,
            note=", ".join(again[:3]),
        ),
        Bar(
            name="FLOPs that run eagerly, median",
            figure=statistics.median(eager),
            limit=0,
            unit="%",
        ),
        Bar(name="FLOPs that run eagerly, most", figure=max(eager), limit=20, unit="%"),
    ]


if __name__ == "__main__":
    sys.exit(main())
