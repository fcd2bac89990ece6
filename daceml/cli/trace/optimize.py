"""`daceml trace optimize`: a faster strategy for a recorded run of several ranks."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from daceml.cli import options
from daceml.cli.output_files import check_targets, written_aside
from daceml.cli.work import working
from daceml.errors import ImplausibleAnswerError, RecordedStepError
from daceml.runtime.progress import publish
from daceml.time_budget import budget_s

if TYPE_CHECKING:
    from daceml.simulation.distributed.recorded_run import RecordedRun
    from daceml.simulation.distributed.strategy.search import Progress
    from daceml.simulation.distributed.strategy.synchronization import Synchronization
    from daceml.simulation.distributed.strategy.training_step import Memory

Folder = Annotated[
    Path,
    typer.Argument(
        metavar="DIR", help="folder with the traces of all ranks, as `daceml trace profile` collects them"
    ),
]
MemoryLimit = Annotated[
    str | None,
    typer.Option(
        "--memory",
        metavar="SIZE",
        help="memory of a device: 80GB; needs a run recorded with memory=True",
    ),
]
Context = Annotated[
    str | None,
    typer.Option(
        "--context", metavar="SIZE", help="GPU memory of a process without tensors (default: 551MiB)"
    ),
]
Budget = Annotated[
    str,
    typer.Option(
        "--budget", metavar="TIME", help="time limit of the search: 30s, 5m, 1h; the best so far counts"
    ),
]
LinkSpeed = Annotated[
    str | None,
    typer.Option(
        "--link",
        metavar="SPEED",
        help="interconnect of hosts, or of ranks on one host: 100Gbps, NVLink3",
    ),
]
InsideSpeed = Annotated[
    str | None,
    typer.Option(
        "--inside", metavar="SPEED", help="interconnect within a host, if there are several: NVLink3"
    ),
]
PlanFile = Annotated[
    Path | None,
    typer.Option(
        "--plan", metavar="FILE", help="file for the buckets of daceml.DistDataParallel(model, buckets=FILE)"
    ),
]
Partition = Annotated[
    bool,
    typer.Option("--partition", help="also try buckets sent in parts, which daceml cannot apply"),
]

_EFFICIENCY = 0.75  # share of a link's bandwidth that collectives reach, as of `daceml trace whatif --ddp`


def optimize(
    folder: Folder,
    memory: MemoryLimit = None,
    context: Context = None,
    budget: Budget = "1m",
    link: LinkSpeed = None,
    inside: InsideSpeed = None,
    plan: PlanFile = None,
    partition: Partition = False,
    wide: options.Wide = False,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
    debug: options.Debug = False,
) -> None:
    """Search for a faster strategy for a recorded run of several ranks, and print how to apply it.

    With --memory, a run that does not fit is searched with accumulation, recomputation and sharding.
    --link replaces the recorded interconnect.
    """
    from daceml.prediction.model_steps.memory_need import CONTEXT_BYTES
    from daceml.profiling.kineto.ranks import read_traces
    from daceml.report.strategy_text import run_text, strategy_json, strategy_text
    from daceml.simulation.distributed.recorded_run import RecordedRun
    from daceml.simulation.distributed.strategy import optimizer
    from daceml.simulation.distributed.strategy.advice import advice
    from daceml.simulation.distributed.strategy.choices import fits
    from daceml.simulation.distributed.strategy.fewer_buckets import simplified
    from daceml.simulation.distributed.strategy.recorded_step import SentGradients, recorded_step
    from daceml.simulation.distributed.strategy.search import Problem
    from daceml.simulation.distributed.strategy.walk import TENSOR_FUSION, TENSOR_PARTITION
    from daceml.simulation.network.quantities import size_bytes

    check_targets([("--plan", plan)])
    seconds = budget_s(budget)
    memory_bytes = None if memory is None else size_bytes(memory)
    context_bytes = CONTEXT_BYTES if context is None else size_bytes(context)
    with working(quiet=quiet):
        publish("reading and replaying the traces")
        recorded = RecordedRun.of(read_traces(folder))
        first = recorded.traces[0]
        gradients = SentGradients.of(first.header, first.source)
        sizes = sum(one.size_bytes for one in gradients.order)
        step = recorded_step(
            recorded.run, recorded.alignment, gradients,
            synchronization=None if link is None else _over(link, inside, recorded),
            memory=None if memory is None else _memory(recorded, sizes, context_bytes),
        )  # fmt: skip
    if not as_json:
        typer.echo(run_text(recorded))
        typer.echo("")
    _refuse_missed(recorded, float("nan") if link is not None else step.error)  # of the recorded link
    kinds = {TENSOR_FUSION, TENSOR_PARTITION} if partition else {TENSOR_FUSION}
    problem = Problem(step=step.step, synchronization=step.synchronization, kinds=frozenset(kinds))
    with working(quiet=quiet):
        publish("searching for a strategy")
        strategy = optimizer.optimize(
            problem,
            memory_bytes=memory_bytes,
            budget_s=seconds,
            kinds=() if fits(step.step.memory, memory_bytes) else None,  # they are for what does not fit
            observe=None if quiet else _told,
        )
    strategy = replace(strategy, found=simplified(strategy.found, strategy.problem))
    advised = advice(strategy, wrapper=step.wrapper, plan_file="plan.json" if plan is None else str(plan))
    if plan is not None:
        with written_aside("--plan", plan) as aside:
            aside.write_text(json.dumps(advised.plan_json(), indent=1) + "\n", encoding="utf-8")
    if as_json:
        typer.echo(json.dumps(strategy_json(recorded, step, strategy, advised), indent=2))
    else:
        typer.echo(strategy_text(step, strategy, advised, memory_bytes))


def _refuse_missed(recorded: RecordedRun, model_error: float) -> None:
    """No advice on a step that the model misses."""
    from daceml.simulation.analysis.reliability import MOST_ERROR

    errors = {
        "the replay of the run": recorded.replay.error,
        "the model of its typical step, with its buckets,": model_error,
    }
    for what, error in errors.items():
        if abs(error) > MOST_ERROR:
            raise ImplausibleAnswerError(
                "no advice can be given for this run",
                where=recorded.traces[0].source,
                why=f"{what} misses the recorded steps by {error:+.1%}, more than {MOST_ERROR:.0%}",
                fix="record more steps with daceml.profile on an otherwise idle machine",
            )


def _told(progress: Progress) -> None:
    typer.echo(
        f"{progress.seconds:7.1f} s  {progress.round}: {progress.step_us / 1e3:.2f} ms"
        f" after {progress.simulated} simulated steps",
        err=True,
    )


def _over(link: str, inside: str | None, recorded: RecordedRun) -> Synchronization:
    from daceml.simulation.distributed.strategy.synchronization import Synchronization
    from daceml.simulation.network.topology import Topology

    hosts, ranks = len(set(recorded.hosts)), len(recorded.traces)
    devices = str(ranks) if hosts == 1 else f"{hosts}x{ranks // hosts}"
    return Synchronization.all_reduce(Topology.of(devices, link, inside=inside).at_efficiency(_EFFICIENCY))


def _memory(recorded: RecordedRun, gradient_bytes: float, context_bytes: float) -> Memory:
    from daceml.simulation.distributed.strategy.recorded_memory import recorded_memory

    found = [recorded_memory(trace, gradient_bytes, context_bytes=context_bytes) for trace in recorded.traces]
    known = [one for one in found if one is not None]
    if not known:
        raise RecordedStepError(
            "the memory of the recorded run is unknown",
            where=recorded.traces[0].source,
            why="the traces have no events of an allocator with the total that is allocated",
            fix="record with daceml.profile(model, memory=True), or leave --memory out",
        )
    return max(known, key=lambda one: one.peak_bytes)
