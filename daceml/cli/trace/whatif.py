"""`daceml trace whatif`: predicted effects of optimizations on a recorded run."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from daceml.cli import options
from daceml.cli.output_files import check_targets
from daceml.cli.trace.replay import HtmlFile, PerfettoFile, QueueDepth, write_views
from daceml.cli.trace.trace_file import TraceFile, refuse_model
from daceml.cli.work import working
from daceml.errors import DacemlError, WhatIfError
from daceml.runtime.progress import publish

if TYPE_CHECKING:
    from daceml.profiling.trace import Trace

# Whatever is no option of the command is a question.
CONTEXT = {"allow_extra_args": True, "ignore_unknown_options": True}


EPILOG = (
    "Questions, one or more: --amp, --low-precision, --fused-adam, --cuda-graphs, --compile, "
    "--checkpointing, --data-loader 4, --gradient-accumulation 4, --batch 2, --device, "
    "--restructured-batch-norm, --metaflow, --vdnn, --gist, --ddp 4x8, --blueconnect 4x8, --dgc 4x8, "
    "--parameter-server 4, --p3 4, --faster-link. Figures follow a question: --amp 3:4:2 (likely, at best, "
    "at worst), --data-loader workers=4. Several questions are answered one by one, and then together."
)


def whatif(
    context: typer.Context,
    trace: TraceFile,
    link: Annotated[
        str | None,
        typer.Option(
            metavar="SPEED", help="interconnect of nodes, or of devices in one node: 100Gbps, 25GB/s, NVLink3"
        ),
    ] = None,
    inside: Annotated[
        str | None,
        typer.Option(metavar="SPEED", help="interconnect within a node, if there are several: NVLink3"),
    ] = None,
    gradients: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            help="size of all gradients, 102MB, or of each: fc.weight=8MB,fc.bias=4kB",
        ),
    ] = None,
    changes: Annotated[
        bool, typer.Option("--changes", help="list of the changes that each question makes to the run")
    ] = False,
    perfetto: PerfettoFile = None,
    html: HtmlFile = None,
    queue_depth: QueueDepth = None,
    wide: options.Wide = False,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
    debug: options.Debug = False,
) -> None:
    """Predict the effect of optimizations on a recorded run.

    `daceml whatif` predicts the effect of compiler passes on a model. daceml.profile records the sizes of
    gradients.
    """
    from daceml.profiling.kineto import read_trace
    from daceml.report.replay_html import whatif_html
    from daceml.report.replay_json import whatif_json
    from daceml.report.replay_text import whatif_text
    from daceml.simulation import Options, build, predict_each, simulate
    from daceml.simulation.whatif.gradients import Gradients
    from daceml.simulation.whatif.questions import Network, answerable, gradients_of, words_of
    from daceml.simulation.whatif.recorded_gradients import gradients_in

    refuse_model(trace, "whatif")
    check_targets([("--perfetto", perfetto), ("--html", html)], read=trace)
    words = words_of(context.args)
    if not words:
        raise WhatIfError("nothing is asked", fix="give a question, such as --amp; --help lists them")
    with working(quiet=quiet):
        publish("reading the trace")
        recorded = read_trace(trace)
        known = gradients_of(gradients) if gradients is not None else Gradients.recorded(recorded.header)
        network = Network(
            link=link,
            inside=inside,
            gradients=known or gradients_in(recorded),
            card_link=_card_link(recorded),
        )
        asked, lacking = answerable(words, network)
        publish("replaying")
        graph = build(recorded, Options(queue_depth=queue_depth))
        baseline = simulate(graph)
        publish("predicting")
        predictions, refusals = predict_each(graph, asked, baseline=baseline)
        refusals = [*lacking, *refusals]
        schedules = {"replayed": baseline}
        schedules |= {" + ".join(seen.titles): seen.schedule for seen in predictions}
        write_views(perfetto, html, schedules, lambda: whatif_html(predictions))
    if as_json:
        typer.echo(json.dumps(whatif_json(predictions, refusals), indent=2))
    else:
        typer.echo(whatif_text(predictions, refusals, changes=changes))


def _card_link(recorded: Trace) -> str | None:
    """The interconnect between cards of the recorded kind on one node, in each direction; None if unknown."""
    from daceml.prediction.recorded_runs.recording_device import origin_of

    try:
        link = origin_of(recorded).link_bytes_per_s
    except DacemlError:
        return None
    return None if link is None else f"{link.value / 2 / 1e9:g}GB/s"  # data sheets count both directions
