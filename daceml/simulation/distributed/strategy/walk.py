"""A walk along the critical path that fuses neighbours where a theorem says so: dPRO's Algorithm 1."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from daceml.simulation.distributed.strategy.evaluation import Evaluation, Evaluator
from daceml.simulation.distributed.strategy.plan import Plan, bytes_of_bucket
from daceml.simulation.distributed.strategy.step_graph import group_us
from daceml.simulation.distributed.strategy.theorems import fuse_both, fuse_computations, fuse_tensors
from daceml.simulation.distributed.strategy.training_step import Computation

# What a walk may do
OPERATOR_FUSION = "operator fusion"
TENSOR_FUSION = "tensor fusion"
TENSOR_PARTITION = "tensor partition"
KINDS = (OPERATOR_FUSION, TENSOR_FUSION, TENSOR_PARTITION)

_Signature = tuple[tuple[str, ...], int]


@dataclass(kw_only=True)
class Walk:
    """Decides cut by cut; each decision sees those before it.

    Attributes:
        kinds: of `KINDS`, what may be done.
        over: whether time is: the rest of the path is left as it is.
    """

    evaluator: Evaluator
    over: Callable[[], bool]
    kinds: frozenset[str] = frozenset(KINDS)
    _decided: dict[_Signature, bool] = field(default_factory=dict[_Signature, bool], repr=False)

    def along(self, plan: Plan, seen: Evaluation) -> Plan:
        """The plan with what pays on the critical path of `seen`, which is its simulation."""
        critical = seen.first_critical_bucket
        plan_after = self._along_computing(plan, plan.buckets[min(critical, len(plan.buckets) - 1)])
        if critical < len(plan.buckets):
            plan_after = self._along_sending(plan_after, plan, seen, critical)
        return self._in_parts(plan_after, range(len(plan_after.buckets)))

    def _along_computing(self, plan: Plan, end: int) -> Plan:
        """Theorem 1 up to where the path goes over to the network, and Theorem 3 for the tensors."""
        for cut in [one for one in plan.groups[:-1] if one <= end]:
            if self.over():
                break
            if OPERATOR_FUSION in self.kinds and self._computations_fuse(plan, cut):
                plan = plan.with_group_joined(cut)
                if TENSOR_FUSION in self.kinds and cut in plan.buckets[:-1]:
                    plan = plan.with_bucket_joined(cut, 1)
        return plan

    def _along_sending(self, plan: Plan, before: Plan, seen: Evaluation, critical: int) -> Plan:
        """Theorem 2 from the first bucket that waits for the network, and Theorem 3 for the computations."""
        start = before.ranges_of_buckets[critical][0]
        previous_end_us: float | None = None
        open_us = 0.0  # when the network is free for the bucket that may still grow
        for cut in [one for one in before.buckets if one > start and one in plan.buckets]:
            if self.over():
                break
            bucket = plan.buckets.index(cut)
            ready_us = self._ready_us(before, seen, cut)
            this_us = self._sync_us(plan, bucket)
            if previous_end_us is not None and TENSOR_FUSION in self.kinds:
                joint = plan.with_bucket_joined(plan.buckets[bucket - 1], 1)
                fused_us = self._sync_us(joint, bucket - 1)
                if fuse_tensors(
                    previous_sync_end_us=previous_end_us,
                    this_end_us=ready_us,
                    fused_sync_us=fused_us,
                    this_sync_us=this_us,
                ):
                    plan = self._with_computations_fused(joint, plan.buckets[bucket - 1])
                    previous_end_us = max(open_us, ready_us) + fused_us
                    continue
            open_us = previous_end_us or 0.0
            previous_end_us = max(open_us, ready_us) + this_us
        return plan

    def _computations_fuse(self, plan: Plan, cut: int) -> bool:
        members, first = self._around(plan, cut)
        likeness = tuple(one.likeness for one in members)
        signature = (likeness, cut - first)
        remembered = self.evaluator.accelerations.symmetric and all(likeness)
        if remembered and signature in self._decided:
            return self._decided[signature]
        fused_us = self._fused_us(members)
        sync_us = self._sync_us(plan, plan.buckets.index(cut)) if cut in plan.buckets else 0.0
        place = plan.groups.index(cut)
        decided = fused_us is not None and fuse_computations(
            previous_us=self._group_us(plan, place),
            this_us=self._group_us(plan, place + 1),
            fused_us=fused_us,
            previous_sync_us=sync_us,
        )
        if remembered:
            self._decided[signature] = decided
        return decided

    def _with_computations_fused(self, plan: Plan, cut: int) -> Plan:
        if OPERATOR_FUSION not in self.kinds or cut not in plan.groups[:-1]:
            return plan
        fused_us = self._fused_us(self._around(plan, cut)[0])
        place = plan.groups.index(cut)
        faster = fused_us is not None and fused_us <= self._group_us(plan, place) + self._group_us(
            plan, place + 1
        )
        return plan.with_group_joined(cut) if faster and fuse_both(computations=False, tensors=True) else plan

    def _around(self, plan: Plan, cut: int) -> tuple[Sequence[Computation], int]:
        """The computations of the two groups at a cut, and the number of the first."""
        place = plan.groups.index(cut)
        (first, _), (_, end) = plan.ranges_of_groups[place : place + 2]
        return self.evaluator.step.computations[first:end], first

    def _fused_us(self, members: Sequence[Computation]) -> float | None:
        return self.evaluator.fused_us(members) if len({one.part for one in members}) == 1 else None

    def _group_us(self, plan: Plan, place: int) -> float:
        return group_us(self.evaluator.step, plan, place, self.evaluator.fused_us)

    def _sync_us(self, plan: Plan, bucket: int) -> float:
        """Of a bucket in its best number of parts, or whole where it may not be cut."""
        size = bytes_of_bucket(self.evaluator.step, plan, bucket)
        if TENSOR_PARTITION in self.kinds:
            return self.evaluator.parts_of(plan, bucket, size)[1]
        return self.evaluator.synchronization.sync_us(size)

    def _in_parts(self, plan: Plan, buckets: Iterable[int]) -> Plan:
        if TENSOR_PARTITION in self.kinds:
            for bucket in buckets:
                if self.over():
                    break
                size = bytes_of_bucket(self.evaluator.step, plan, bucket)
                plan = plan.with_parts(bucket, self.evaluator.parts_of(plan, bucket, size)[0])
        return plan

    def _ready_us(self, plan: Plan, seen: Evaluation, cut: int) -> float:
        """When the tensors up to a cut of buckets are computed."""
        place = next(i for i, end in enumerate(plan.groups) if end >= cut)
        return float(seen.computed_us[place])
