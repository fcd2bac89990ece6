"""`daceml whatif`: predicted effects of optimizations on a recorded run."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from daceml.cli import options
from daceml.cli.output_files import check_targets
from daceml.cli.replay import HtmlFile, PerfettoFile, QueueDepth, write_views
from daceml.errors import DacemlError, WhatIfError

if TYPE_CHECKING:
    from daceml.profiling.trace import Trace

# Whatever is no option of the command is a question.
CONTEXT = {"allow_extra_args": True, "ignore_unknown_options": True}


MODULE = re.compile(r".+:[A-Za-z_]\w*")

EPILOG = (
    "Questions, one or more: --amp, --low-precision, --fused-adam, --cuda-graphs, --compile, "
    "--checkpointing, --data-loader 4, --gradient-accumulation 4, --batch 2, --device, "
    "--restructured-batch-norm, --metaflow, --vdnn, --gist, --ddp 4x8, --blueconnect 4x8, --dgc 4x8, "
    "--parameter-server 4, --p3 4, --faster-link. Figures follow a question: --amp 3:4:2 (likely, at best, "
    "at worst), --data-loader workers=4. Several questions are answered one by one, and then together."
)


class WhatIf(TyperCommand):
    """Shows the options of what it is asked about: a trace, or a model."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """As the base class does, which answers --help before anything else."""
        models = [one for one in args if MODULE.fullmatch(one) and not one.startswith("-")]
        if "--help" in args and models:
            from daceml.cli.whatif_model import whatif_model

            whatif_model(models[0], ["--help"], as_json=False)
            ctx.exit()
        return super().parse_args(ctx, args)


def whatif(
    context: typer.Context,
    trace: Annotated[
        Path,
        typer.Argument(
            metavar="TRACE|MODEL",
            help="torch.profiler trace (.json, .json.gz), or a model (path.py:Name)",
        ),
    ],
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
    as_json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """Predict the effect of optimizations on a recorded run.

    For a model, path.py:Name or package.module:Name, predict the effect of compiler passes and additions, and
    the time on other devices. `daceml whatif MODEL --help` lists these options: --input, --inputs, --train,
    --without PASS, --with bf16, --measure, --on H100, --ranks 8, --json and --quiet. daceml.profile records
    the sizes of gradients.
    """
    if not trace.exists() and MODULE.fullmatch(str(trace)):
        from daceml.cli.whatif_model import whatif_model

        whatif_model(str(trace), context.args, as_json=as_json)
        return
    if trace.suffix == ".py":
        raise WhatIfError(
            f"{trace} names no model", why="there is no name after a colon", fix=f"write {trace}:Name"
        )
    from daceml.profiling.kineto import read_trace
    from daceml.report.replay_html import whatif_html
    from daceml.report.replay_json import whatif_json
    from daceml.report.replay_text import whatif_text
    from daceml.simulation import Options, build, predict_each, simulate
    from daceml.simulation.whatif.gradients import Gradients
    from daceml.simulation.whatif.questions import Network, answerable, gradients_of, words_of
    from daceml.simulation.whatif.recorded_gradients import gradients_in

    check_targets([("--perfetto", perfetto), ("--html", html)], read=trace)
    words = words_of(context.args)
    if not words:
        raise WhatIfError("nothing is asked", fix="give a question, such as --amp; --help lists them")
    recorded = read_trace(trace)
    known = gradients_of(gradients) if gradients is not None else Gradients.recorded(recorded.header)
    network = Network(
        link=link, inside=inside, gradients=known or gradients_in(recorded), card_link=_card_link(recorded)
    )
    asked, lacking = answerable(words, network)
    graph = build(recorded, Options(queue_depth=queue_depth))
    baseline = simulate(graph)
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
