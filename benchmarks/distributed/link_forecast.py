"""Steps of two ranks foretold from their computation alone and from a table of all-reduces of their link."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from benchmarks.distributed.real_networks import Sending
from daceml.simulation.distributed.strategy.evaluation import Evaluator
from daceml.simulation.distributed.strategy.plan import (
    Plan,
    bytes_of_bucket,
    data_parallel_default,
    nothing_fuses,
)  # fmt: skip
from daceml.simulation.distributed.strategy.search import Found, Problem, search
from daceml.simulation.distributed.strategy.synchronization import Synchronization
from daceml.simulation.distributed.strategy.training_step import Computation, Part, TrainingStep
from daceml.simulation.distributed.strategy.walk import TENSOR_FUSION
from daceml.simulation.network.collectives import Collective
from daceml.simulation.network.measured import MeasuredCollective

MIB = 2.0**20
_LARGE = MIB  # from here on an all-reduce is its bytes, below it is its latency
_MOST = 0.9  # of a core, so that what computes goes on


@dataclass(frozen=True, kw_only=True)
class Link:
    """How two ranks sum a tensor.

    Attributes:
        interference: share of a rank's core that it takes from what computes meanwhile.
    """

    table: MeasuredCollective
    interference: float

    @classmethod
    def of(cls, ranks: Sequence[Sequence[Sequence[float]]], source: str) -> Link:
        """From rows of bytes, microseconds and microseconds of processors, of each rank."""
        rows = [row for rank in ranks for row in rank]
        table = MeasuredCollective.of(
            [(size, us) for size, us, _ in rows],
            collective=Collective.ALL_REDUCE,
            devices=len(ranks),
            source=source,
        )
        shares = [worked / us for size, us, worked in rows if size >= _LARGE]
        return cls(table=table, interference=min(median(shares), _MOST))

    def slower(self, factor: float) -> Link:
        """With a bandwidth that is so many times smaller: what is beyond the latency takes so much longer.

        The work for the bytes stays, and spreads over the longer time.
        """
        latency_us = float(self.table.times_us[0])
        times_us = latency_us + factor * (self.table.times_us - latency_us)
        return Link(
            table=dataclasses.replace(self.table, times_us=times_us), interference=self.interference / factor
        )


def step_of(chains: Sequence[dict[str, Any]]) -> TrainingStep:
    """The step of all ranks: computations take what they take on average, some ranks are slower.

    Args:
        chains: of each rank, forward_us, gradients as (name, microseconds since the one before, bytes) in the
            order in which they are ready, and update_us.
    """
    totals = [_total_us(chain) for chain in chains]
    middle = sum(totals) / len(totals)

    def mean(values: Sequence[float]) -> float:
        return sum(values) / len(values)

    forward = Computation(
        name="forward", duration_us=mean([chain["forward_us"] for chain in chains]), part=Part.FORWARD
    )
    backward = [
        Computation(
            name=name,
            duration_us=mean([chain["gradients"][place][1] for chain in chains]),
            gradient_bytes=size,
            parameters=(name,),
        )
        for place, (name, _, size) in enumerate(chains[0]["gradients"])
    ]
    return TrainingStep(
        computations=(forward, *backward),
        update_us=mean([chain["update_us"] for chain in chains]),
        devices=len(chains),
        slowness=tuple(total / middle for total in totals),
    )


def _total_us(chain: dict[str, Any]) -> float:
    return chain["forward_us"] + sum(row[1] for row in chain["gradients"]) + chain["update_us"]


def plan_of(step: TrainingStep, sending: Sending) -> Plan:
    """The buckets that torch makes of these settings.

    A limit that is given holds for the first bucket, too, which is small only by default.
    """
    if sending.caps_mb:
        raise ValueError("limits of each bucket come from a plan")
    if sending.cap_mb is None:
        plan = data_parallel_default(step)
    else:
        limit = sending.cap_mb * MIB
        plan = data_parallel_default(step, first_bytes=limit, limit_bytes=limit)
    return dataclasses.replace(plan, parts=(sending.parts,) * len(plan.buckets))


def foretold_us(step: TrainingStep, plan: Plan, link: Link) -> float:
    """A step under a plan."""
    return Evaluator(
        step=step,
        synchronization=Synchronization.measured(link.table),
        fused_us=nothing_fuses,
        interference=link.interference,
    )(plan).step_us


def found(step: TrainingStep, link: Link, *, budget_s: float) -> Found:
    """The best buckets that the search finds."""
    problem = Problem(
        step=step, synchronization=Synchronization.measured(link.table), kinds=frozenset({TENSOR_FUSION}),
        interference=link.interference,
    )  # fmt: skip
    return search(problem, budget_s=budget_s)


def as_sending(found: Found) -> Sending:
    """The found buckets as limits for DistributedDataParallel, which closes one that has reached its own."""
    sizes = [bytes_of_bucket(found.step, found.plan, bucket) for bucket in range(len(found.plan.buckets))]
    # a byte less, as they are rounded down to whole ones
    return Sending(caps_mb=tuple((size - 1) / MIB for size in sizes if size > 1))
