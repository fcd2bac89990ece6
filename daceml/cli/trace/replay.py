"""`daceml trace replay`: a recorded run, simulated and compared with the recording."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from daceml.cli import options
from daceml.cli.output_files import check_targets, written_aside
from daceml.cli.trace.trace_file import TraceFile
from daceml.cli.work import working
from daceml.runtime.progress import publish

if TYPE_CHECKING:
    from daceml.simulation.engine import Schedule

PerfettoFile = Annotated[
    Path | None,
    typer.Option(
        "--perfetto",
        metavar="FILE",
        help="file for recorded and simulated tracks, for ui.perfetto.dev (.gz: compressed)",
    ),
]
HtmlFile = Annotated[
    Path | None, typer.Option("--html", metavar="FILE", help="file for a self-contained HTML page")
]
QueueDepth = Annotated[
    int | None,
    typer.Option(
        "--queue-depth",
        min=1,
        metavar="N",
        help="maximum launches queued on a stream (default: from the trace, else 1024)",
    ),
]


def replay(
    trace: TraceFile,
    perfetto: PerfettoFile = None,
    html: HtmlFile = None,
    queue_depth: QueueDepth = None,
    wide: options.Wide = False,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
    debug: options.Debug = False,
) -> None:
    """Replay a recorded run: replayed and recorded steps, time by kind of task, and limits.

    The trace has the CPU side and, if there is one, the device.
    """
    from daceml.prediction.recorded_runs.recorded_amounts import recorded_amounts
    from daceml.profiling.kineto import read_trace
    from daceml.report.replay_html import replay_html
    from daceml.report.replay_json import replay_json
    from daceml.report.replay_text import replay_text
    from daceml.simulation import Options, build, simulate

    check_targets([("--perfetto", perfetto), ("--html", html)], read=trace)
    with working(quiet=quiet):
        publish("reading the trace")
        recorded = read_trace(trace)
        publish("replaying")
        schedule = simulate(build(recorded, Options(queue_depth=queue_depth)))
        amounts = recorded_amounts(schedule.graph, recorded)
        write_views(perfetto, html, {"replayed": schedule}, lambda: replay_html(schedule, amounts=amounts))
        told = (
            json.dumps(replay_json(schedule, amounts=amounts), indent=2)
            if as_json
            else replay_text(schedule, amounts=amounts)
        )
    typer.echo(told)


def write_views(
    perfetto: Path | None, html: Path | None, schedules: dict[str, Schedule], page: Callable[[], str]
) -> None:
    """Write the files that were asked for."""
    from daceml.report.perfetto import write_perfetto
    from daceml.simulation.analysis.critical_path import critical_path

    if perfetto is not None:
        paths = {title: critical_path(schedule) for title, schedule in schedules.items()}
        with written_aside("--perfetto", perfetto) as aside:
            write_perfetto(aside, schedules, paths=paths)
    if html is not None:
        with written_aside("--html", html) as aside:
            aside.write_text(page(), encoding="utf-8")
