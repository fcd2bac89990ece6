"""What a strategy decides of a chain of computations: which are fused, which tensors are sent together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from daceml.errors import StrategyError
from daceml.simulation.distributed.strategy.training_step import Computation, TrainingStep
from daceml.simulation.whatif.buckets import FIRST_BYTES, LIMIT_BYTES

# How long a fused computation takes, or None where these neighbours cannot be one.
FusedTime = Callable[[Sequence[Computation]], float | None]


def nothing_fuses(computations: Sequence[Computation]) -> None:
    """Where nobody knows which computations could be fused."""
    del computations


@dataclass(frozen=True)
class Plan:
    """Cuts of a chain of n computations, as numbers behind which one ends; each list ends with n.

    Attributes:
        groups: of fused computations.
        buckets: of tensors that are sent together, counted in computations too.
        parts: in how many parts each bucket is sent.
    """

    groups: tuple[int, ...]
    buckets: tuple[int, ...]
    parts: tuple[int, ...]

    def __post_init__(self) -> None:
        for name, cuts in (("groups", self.groups), ("buckets", self.buckets)):
            if not cuts or list(cuts) != sorted(set(cuts)) or cuts[0] < 1:
                raise StrategyError(
                    f"{name} {cuts} are no cuts of a chain", fix="give rising numbers above 0"
                )
        if self.groups[-1] != self.buckets[-1] or len(self.parts) != len(self.buckets) or min(self.parts) < 1:
            raise StrategyError(
                f"{len(self.buckets)} buckets of {self.buckets[-1]} computations have {len(self.parts)}"
                f" numbers of parts, and groups go over {self.groups[-1]} computations",
                fix="let both end with the number of computations, and give each bucket 1 part or more",
            )

    @cached_property
    def ranges_of_groups(self) -> tuple[tuple[int, int], ...]:
        """First and behind the last computation of each group."""
        return tuple(zip((0, *self.groups[:-1]), self.groups, strict=True))

    @cached_property
    def ranges_of_buckets(self) -> tuple[tuple[int, int], ...]:
        """Likewise of each bucket."""
        return tuple(zip((0, *self.buckets[:-1]), self.buckets, strict=True))

    def with_group_joined(self, cut: int) -> Plan:
        """Without the cut of groups behind so many computations."""
        return replace(self, groups=tuple(one for one in self.groups if one != cut))

    def with_group_cut(self, cut: int) -> Plan:
        """With one more."""
        return replace(self, groups=tuple(sorted({*self.groups, cut})))

    def with_bucket_joined(self, cut: int, parts: int) -> Plan:
        """Without the cut of buckets behind so many computations; the joint bucket has so many parts."""
        place = self.buckets.index(cut)
        return replace(
            self,
            buckets=self.buckets[:place] + self.buckets[place + 1 :],
            parts=(*self.parts[:place], parts, *self.parts[place + 2 :]),
        )

    def with_bucket_cut(self, cut: int, parts: tuple[int, int]) -> Plan:
        """With one more; the two buckets that become of one have so many parts."""
        place = next(i for i, end in enumerate(self.buckets) if end > cut)
        return replace(
            self,
            buckets=(*self.buckets[:place], cut, *self.buckets[place:]),
            parts=(*self.parts[:place], *parts, *self.parts[place + 1 :]),
        )

    def with_parts(self, bucket: int, parts: int) -> Plan:
        """With another number of parts of a bucket."""
        return replace(self, parts=(*self.parts[:bucket], parts, *self.parts[bucket + 1 :]))


def separate(step: TrainingStep) -> Plan:
    """Nothing is fused: each computation alone, each tensor sent as soon as it is there."""
    ends = _bucket_ends(step, lambda size, first: size > 0)
    return Plan(tuple(range(1, len(step.computations) + 1)), ends, (1,) * len(ends))


def data_parallel_default(
    step: TrainingStep, *, first_bytes: float = FIRST_BYTES, limit_bytes: float = LIMIT_BYTES
) -> Plan:
    """The buckets of torch's DistributedDataParallel: a small first one, then of 25 MiB."""
    ends = _bucket_ends(step, lambda size, first: size >= (first_bytes if first else limit_bytes))
    return Plan(tuple(range(1, len(step.computations) + 1)), ends, (1,) * len(ends))


def bytes_of_bucket(step: TrainingStep, plan: Plan, bucket: int) -> float:
    """How much a bucket sends."""
    first, end = plan.ranges_of_buckets[bucket]
    return sum(one.gradient_bytes for one in step.computations[first:end])


def bucket_parameters(step: TrainingStep, plan: Plan) -> Iterator[tuple[str, ...]]:
    """Names of the parameters of each bucket, in the order in which their gradients are ready."""
    for first, end in plan.ranges_of_buckets:
        yield tuple(name for one in step.computations[first:end] for name in one.parameters)


def _bucket_ends(step: TrainingStep, full: Callable[[float, bool], bool]) -> tuple[int, ...]:
    """What sends nothing belongs to the bucket behind it, and at the end of the chain to the last one."""
    ends: list[int] = []
    size = 0.0
    for number, one in enumerate(step.computations, 1):
        size += one.gradient_bytes
        if one.gradient_bytes and full(size, not ends):
            ends.append(number)
            size = 0.0
    if size > 0 or not ends:
        ends.append(len(step.computations))
    ends[-1] = len(step.computations)
    return tuple(ends)
