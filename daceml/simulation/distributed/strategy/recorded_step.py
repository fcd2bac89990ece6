"""A typical step of a recorded data-parallel run, as the search for strategies takes it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np

from daceml.errors import RecordedStepError
from daceml.simulation.distributed.clocks.alignment import Alignment
from daceml.simulation.distributed.matching import MatchedRun
from daceml.simulation.distributed.strategy.evaluation import Evaluation, Evaluator
from daceml.simulation.distributed.strategy.plan import Plan, data_parallel_default, nothing_fuses
from daceml.simulation.distributed.strategy.recorded_moments import Moments, moments_of
from daceml.simulation.distributed.strategy.recorded_sums import Sum, latency_seen, learned, sums_in
from daceml.simulation.distributed.strategy.synchronization import Synchronization
from daceml.simulation.distributed.strategy.training_step import Computation, Memory, Part, TrainingStep
from daceml.simulation.distributed.waits import separated
from daceml.simulation.graph import Floats
from daceml.simulation.whatif.backward_phases import computing
from daceml.simulation.whatif.buckets import in_ready_order
from daceml.simulation.whatif.gradients import Gradient, Gradients

_RECORD = (
    "record every rank of a training loop with daceml.profile(model), where model is what"
    " DistributedDataParallel returned"
)


@dataclass(frozen=True, kw_only=True)
class SentGradients:
    """What the header of a trace says of gradients.

    Attributes:
        order: in which they are sent.
        buckets: names of the parameters of each bucket; None where nobody has seen the buckets.
        sizes: of the buckets in bytes; None likewise.
        wrapper: what names begin with only because the model is wrapped, such as "module.".
    """

    order: tuple[Gradient, ...]
    buckets: tuple[tuple[str, ...], ...] | None = None
    sizes: frozenset[float] | None = None
    wrapper: str = ""

    @classmethod
    def of(cls, header: Mapping[str, Any], source: str = "") -> SentGradients:
        """From `Trace.header`.

        Args:
            source: of the trace, for messages.
        Raises:
            RecordedStepError: it says nothing of gradients.
            WhatIfError: it says so in another form.
        """
        known = Gradients.recorded(header)
        if known is None:
            raise RecordedStepError(
                "the gradients of the recorded run are unknown",
                where=source,
                why="the trace's header has no list of them, which daceml.profile writes",
                fix=_RECORD,
            )
        told = cast("Mapping[str, Any]", header["daceml"]).get("buckets") or {}
        order = in_ready_order(known.rows)
        rows = told.get("buckets") or ()
        if told.get("source") not in ("reducer", "program") or not rows:
            return cls(order=tuple(order))
        module = str(told.get("module") or "")
        wrapper = f"{module}.module." if module else "module."
        sizes = frozenset(float(row["size_bytes"]) for row in rows)
        if any(row.get("parameters") is None for row in rows):
            return cls(order=tuple(order), sizes=sizes, wrapper=wrapper)
        buckets = tuple(tuple(map(str, row["parameters"])) for row in rows)
        by_name = {one.name: one for one in order}
        sent = tuple(by_name[name] for names in buckets for name in names if name in by_name)
        return cls(order=sent, buckets=buckets, sizes=sizes, wrapper=wrapper)


@dataclass(frozen=True, kw_only=True, eq=False)
class RecordedStep:
    """What a run says of its typical step.

    Attributes:
        plan: the buckets that the run had; None where nobody has seen them.
        recorded_us: [k] what each recorded step took.
        wrapper: what names of parameters begin with only because the model is wrapped.
        notes: what is assumed, a sentence each.
    """

    step: TrainingStep
    synchronization: Synchronization
    plan: Plan | None
    recorded_us: Floats
    wrapper: str = ""
    notes: tuple[str, ...] = ()

    @property
    def typical_us(self) -> float:
        """The median of the recorded steps."""
        return float(np.median(self.recorded_us))

    @property
    def error(self) -> float:
        """By how much the step under the recorded buckets is off, as a share; NaN where nobody knows them."""
        return float("nan") if self.plan is None else self.under(self.plan).step_us / self.typical_us - 1.0

    def under(self, plan: Plan) -> Evaluation:
        """The step with other buckets."""
        evaluate = Evaluator(step=self.step, synchronization=self.synchronization, fused_us=nothing_fuses)
        return evaluate(plan)

    def with_limit(self, limit_bytes: float) -> Evaluation:
        """The step with `bucket_cap_mb`, which in torch holds for the first bucket, too."""
        return self.under(data_parallel_default(self.step, first_bytes=limit_bytes, limit_bytes=limit_bytes))


def recorded_step(
    run: MatchedRun,
    alignment: Alignment,
    gradients: SentGradients,
    *,
    synchronization: Synchronization | None = None,
    memory: Memory | None = None,
) -> RecordedStep:
    """A typical step: medians over the recorded ones.

    A bucket is sent when the last rank has its gradients. So the chain of computations is that of whoever was
    last at each gradient, measured from the mean begin of the step on all ranks: with it, waiting for ranks
    that are late now and then is a part of the step. Ranks that are always faster are said to be so.

    Args:
        alignment: of `run.timings`.
        synchronization: how long sums take; None is learned from those of the run.
        memory: of a device, if it is known.
    Raises:
        RecordedStepError: one rank alone, or no backward passes, or no sums of gradients.
    """
    if len(run.ranks) < 2:
        raise RecordedStepError(
            f"a run of {len(run.ranks)} rank sends no gradients",
            fix="give the traces of all ranks of one run",
        )
    moments = moments_of(run, alignment, gradients.order)
    waits = separated(run.timings, alignment)
    sums = sums_in(run, waits, moments, gradients.sizes)
    whole = len(moments.began_us)
    if not sums:
        kinds = sorted({str(match.kind) for match in run.matches})
        raise RecordedStepError(
            "no gradients are summed in the recorded steps",
            where=run.ranks[0].graph.source,
            why="the ranks communicate by " + ", ".join(kinds) if kinds else "the ranks do not communicate",
            fix=_RECORD + "; sharded training (FSDP) sends no gradients by all-reduce, and is not understood",
        )
    _refuse_hidden(run, moments, sums)
    on_device = bool(run.ranks[0].graph.on_device()[computing(run.ranks[0].graph)].any())
    latency_us, known_by = latency_seen(run, waits, on_device=on_device)
    rows = [(one.size_bytes, one.busy_us) for one in sums if one.busy_us > 0]
    rows = rows or [(one.size_bytes, one.end_us - one.begin_us) for one in sums]
    found, how = learned(rows, latency_us)
    chain, update_us = _typical(moments, sums)
    notes = [
        f"medians of {whole} steps of {len(run.ranks)} ranks; devices that wait for each other are one chain",
        f"sums: {how}; latency of {latency_us:.0f} us, {known_by}"
        if synchronization is None
        else "sums: by the link that was given, not by those recorded",
    ]
    if moments.unknown_share > 0:
        notes.append(
            f"{moments.unknown_share:.0%} of the gradients have no known kernels: they are taken as ready"
            " when the same share of the backward pass is over"
        )
    step = TrainingStep(
        computations=_computations(chain, gradients.order),
        update_us=update_us,
        devices=len(run.ranks),
        slowness=_slowness(moments),
        memory=memory,
    )
    return RecordedStep(
        step=step,
        synchronization=synchronization or found,
        plan=_plan(step, gradients),
        recorded_us=moments.lasting_us,
        wrapper=gradients.wrapper,
        notes=tuple(notes),
    )


def _refuse_hidden(run: MatchedRun, moments: Moments, sums: Sequence[Sum]) -> None:
    """Refuse steps whose sums begin before their gradients seem complete: waiting would count twice."""
    if moments.unknown_share == 1:
        return
    last_us = {one.step: one.begin_us for one in sums}
    ready_us = moments.ready_us[:, :, -1].max(axis=1)
    early = sum(begin_us < ready_us[step] for step, begin_us in last_us.items())
    if early > len(last_us) / 2:
        raise RecordedStepError(
            "the trace does not show when gradients are complete",
            where=run.ranks[0].graph.source,
            why=f"in {early} of {len(last_us)} steps the last sum begins before the work that computes its"
            " gradients is over, as in a compiled backward pass, which is one call and waits within it",
            fix="record the model within torch's DistributedDataParallel, and apply the plan to daceml's",
        )


def _typical(moments: Moments, sums: Sequence[Sum]) -> tuple[Floats, float]:
    """[m + 2] durations of the forward pass, up to each gradient, and of what follows; then the update."""
    origin_us = moments.began_us.mean(axis=1)
    points = np.concatenate(
        [moments.backward_us[:, :, None], moments.ready_us, moments.passed_us[:, :, None]], axis=2
    ).max(axis=1)
    points = np.maximum.accumulate(np.maximum(points - origin_us[:, None], 0.0), axis=1)
    chain = np.median(np.diff(points, axis=1, prepend=0.0), axis=0)
    # medians of parts are less than the median of the whole, as what disturbs them only makes them longer
    chain *= np.median(points[:, -1]) / max(float(chain.sum()), 1e-9)
    over_us = points[:, -1].copy()
    for one in sums:
        over_us[one.step] = max(over_us[one.step], one.end_us - origin_us[one.step])
    updates_us = moments.lasting_us - over_us
    return chain, max(0.0, float(np.median(updates_us)))


def _computations(chain: Floats, gradients: Sequence[Gradient]) -> tuple[Computation, ...]:
    forward, *ready, rest = chain.tolist()
    found = [Computation(name="forward pass", duration_us=forward, part=Part.FORWARD)]
    found += [
        Computation(
            name=f"gradient of {one.name}", duration_us=time_us, gradient_bytes=one.size_bytes,
            parameters=(one.name,),
        )
        for one, time_us in zip(gradients, ready, strict=True)
    ]  # fmt: skip
    if rest > 0:
        found.append(Computation(name="rest of the backward pass", duration_us=rest))
    return tuple(found)


def _slowness(moments: Moments) -> tuple[float, ...]:
    """Of each rank beside the slowest, in whole percents, so that equal ranks are equal."""
    lasting_us = np.median(moments.passed_us - moments.began_us, axis=0)
    shares = np.round(lasting_us / max(float(lasting_us.max()), 1e-9), 2)
    return tuple(np.maximum(shares, 0.01).tolist()) if (shares < 1).any() else ()


def _plan(step: TrainingStep, gradients: SentGradients) -> Plan | None:
    if gradients.buckets is None:
        return None
    place_of = {name: number for number, one in enumerate(step.computations, 1) for name in one.parameters}
    ends = [max(place_of[name] for name in names if name in place_of) for names in gradients.buckets]
    plan = data_parallel_default(step)
    return replace(plan, buckets=(*ends[:-1], len(step.computations)), parts=(1,) * len(ends))
