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
    from collections.abc import Sequence

    from daceml.profiling.trace import Trace
    from daceml.simulation.whatif.optimization import Optimization

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
        card, card_link = _card_link(recorded)
        network = Network(
            link=link,
            inside=inside,
            gradients=known or gradients_in(recorded),
            card_link=card_link,
        )
        asked, lacking = answerable(words, network)
        assumed = [] if link or inside or card_link is None else _of_card(asked, card, card_link)
        publish("replaying")
        graph = build(recorded, Options(queue_depth=queue_depth))
        baseline = simulate(graph)
        publish("predicting")
        predictions, refusals = predict_each(graph, asked, baseline=baseline, lacking=lacking)
        schedules = {"replayed": baseline}
        schedules |= {" + ".join(seen.titles): seen.schedule for seen in predictions}
        write_views(perfetto, html, schedules, lambda: whatif_html(predictions, assumed=assumed))
    if as_json:
        typer.echo(json.dumps(whatif_json(predictions, refusals, assumed=assumed), indent=2))
    else:
        typer.echo(whatif_text(predictions, refusals, assumed=assumed, changes=changes))


def _card_link(recorded: Trace) -> tuple[str, str | None]:
    """The recorded card, and the interconnect between such cards on one node, in each direction, if known."""
    from daceml.prediction.recorded_runs.recording_device import origin_of

    try:
        card = origin_of(recorded)
    except DacemlError:
        return "", None
    if card.link_bytes_per_s is None:
        return card.name, None
    # data sheets count both directions
    return card.name, f"{card.link_bytes_per_s.value / 2 / 1e9:g}GB/s"


def _of_card(asked: Sequence[Optimization], card: str, card_link: str) -> list[str]:
    """The sentence on a link that comes from the card; none where no question uses it."""
    from daceml.simulation.network.links import Link, link_of
    from daceml.simulation.network.topology import Topology

    taken = link_of(card_link)
    for one in asked:
        value = getattr(one, "topology", getattr(one, "link", None))
        used = value.inside if isinstance(value, Topology) else value
        if isinstance(used, Link) and used == taken:
            return [
                f"no interconnect was given: devices are joined as {card} cards on one node can be, by"
                f" {card_link} in each direction (data sheet); give --link for another one"
            ]
    return []
