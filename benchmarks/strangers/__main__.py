"""Models of other libraries: python -m benchmarks.strangers --part runs --check.

They need the extra `strangers`; `make strangers` installs it into an environment of its own.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from benchmarks import command
from benchmarks.bars import Bar
from benchmarks.strangers.models import MODELS
from benchmarks.strangers.processes import in_a_process

_LIMIT_S = 900.0
_CASES = [(mode, dynamic) for dynamic in (False, True) for mode in ("evaluation", "training")]


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parse(arguments)
    if options.case:
        return _child(*options.case)
    cases = _CASES[:2] if options.quick else _CASES
    chosen = [name for name in MODELS if not options.models or any(word in name for word in options.models)]
    jobs = [(name, mode, dynamic) for name in chosen for mode, dynamic in cases]
    rows: list[dict[str, Any]] = []
    with ThreadPoolExecutor(options.jobs) as pool:
        for row, line in pool.map(_in_a_process, jobs):
            rows.append(row)
            print(line, flush=True)
    return command.finish("strangers", options, rows, _bars(rows))


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = command.parser("Run models of other libraries, compiled, next to eager PyTorch.")
    parser.add_argument("--part", choices=("runs",), default="runs", help="what is asked of the models")
    parser.add_argument("--models", nargs="*", metavar="WORD", help="models with one of these words")
    parser.add_argument("--jobs", type=int, default=2, help="processes at once")
    parser.add_argument("--case", nargs=3, help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def _in_a_process(job: tuple[str, str, bool]) -> tuple[dict[str, Any], str]:
    """The row of one case; a crash or a timeout is one as well."""
    name, mode, dynamic = job
    case = ["benchmarks.strangers", "--case", name, mode, str(dynamic)]
    ended = in_a_process(case, limit_s=_LIMIT_S)
    if ended.answer is None:
        facts = {"model": name, "mode": mode, "dynamic": dynamic}
        row = {**facts, "kind": "foreign", "programs": 0, "compiled_flops": 0.0, "note": ended.end}
        return row, f"{name} {mode} {dynamic}: {ended.end}"
    return ended.answer["row"], ended.answer["line"]


def _child(name: str, mode: Any, dynamic: str) -> int:
    import torch

    from benchmarks.strangers.runs import run

    torch.set_num_threads(1)
    found = run(MODELS[name], mode, dynamic=dynamic == "True")
    print(json.dumps({"row": found.row(), "line": found.line()}))
    return 0


def _bars(rows: Sequence[dict[str, Any]]) -> list[Bar]:
    def count(kind: str) -> Bar:
        some = [f"{row['model']} {row['mode']}" for row in rows if row["kind"] == kind]
        return Bar(name=f"runs {kind}", figure=len(some), limit=0, note=", ".join(some[:3]))

    models = {row["model"] for row in rows}
    whole = {model for model in models if all(r["programs"] == 1 for r in rows if r["model"] == model)}
    eager = [100 * (1 - row["compiled_flops"]) for row in rows]
    return [
        Bar(name="models short of 60", figure=max(0, 60 - len(models)), limit=0),
        *map(count, ("not made", "refused", "foreign", "wrong")),
        Bar(name="models that are not one program", figure=len(models - whole), limit=len(models) // 6),
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
