"""A strategy as what a user can apply: settings of torch, and buckets for `daceml.DistDataParallel`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from daceml.errors import StrategyError
from daceml.simulation.distributed.strategy.choices import (
    Choice,
    GradientAccumulation,
    MixedPrecision,
    Recomputation,
    Sharding,
)  # fmt: skip
from daceml.simulation.distributed.strategy.optimizer import Strategy
from daceml.simulation.distributed.strategy.plan import bucket_parameters, bytes_of_bucket
from daceml.simulation.distributed.strategy.search import MIB

PLAN_FORMAT = "daceml.buckets"
PLAN_VERSION = 1

_SHARDING = {
    1: "torch.distributed.optim.ZeroRedundancyOptimizer(model.parameters(), optimizer_class=...)",
    2: "FullyShardedDataParallel(model, sharding_strategy=ShardingStrategy.SHARD_GRAD_OP)",
    3: "FullyShardedDataParallel(model, sharding_strategy=ShardingStrategy.FULL_SHARD)",
}


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One thing to write into a training script.

    Attributes:
        code: as it is written.
        why: what it is for.
        step_us: predicted with it; None where it is a part of the whole.
    """

    code: str
    why: str
    step_us: float | None = None


@dataclass(frozen=True, kw_only=True)
class AdvisedBucket:
    """Gradients that are sent together, by names of the unwrapped model, in the order of sending."""

    parameters: tuple[str, ...]
    size_bytes: float
    parts: int = 1


@dataclass(frozen=True, kw_only=True)
class Advice:
    """What a strategy means for a training script.

    Attributes:
        limit_mb: the best `bucket_cap_mb`, in MiB; where one bucket for all is best, enough for all.
        buckets: none where gradients are sharded.
        settings: the choices for the whole step first, then what sends gradients.
        default_us, limit_us, found_us: a step with torch's default, with that limit, and as found.
    """

    settings: tuple[Setting, ...]
    buckets: tuple[AdvisedBucket, ...]
    limit_mb: float
    default_us: float
    limit_us: float
    found_us: float

    def plan_json(self) -> dict[str, Any]:
        """The buckets for `daceml.DistDataParallel(model, buckets=...)`, as plain values.

        Raises:
            StrategyError: a bucket is sent in parts, which DistDataParallel does not do, or there is none.
        """
        if not self.buckets:
            raise StrategyError(
                "there are no buckets to write into a plan",
                why="gradients are sharded, and FullyShardedDataParallel sends them by its own units",
                fix="give more memory, or leave the plan out",
            )
        cut = sum(bucket.parts > 1 for bucket in self.buckets)
        if cut:
            raise StrategyError(
                f"{cut} buckets are sent in parts, which no plan file can say",
                why="DistDataParallel sends a bucket in one all-reduce",
                fix="search without tensor partition",
            )
        return {
            "format": PLAN_FORMAT,
            "version": PLAN_VERSION,
            "step_us": self.found_us,
            "buckets": [list(bucket.parameters) for bucket in self.buckets],
        }


def advice(strategy: Strategy, *, wrapper: str = "", plan_file: str = "plan.json") -> Advice:
    """What to write for a strategy.

    Args:
        wrapper: what names of parameters begin with only because the model was wrapped when it was recorded.
        plan_file: name under which the buckets are going to be kept.
    """
    found = strategy.found
    buckets = tuple(
        AdvisedBucket(
            parameters=tuple(name.removeprefix(wrapper) for name in names),
            size_bytes=bytes_of_bucket(found.step, found.plan, number),
            parts=found.plan.parts[number],
        )
        for number, names in enumerate(bucket_parameters(found.step, found.plan))
    )
    if any(isinstance(one, Sharding) and one.level > 1 for one in strategy.chosen.choices):
        buckets = ()  # FullyShardedDataParallel reduces the gradients of a wrapped unit at once
    total_mb = -(-found.step.gradient_bytes // MIB) + 1
    limit_mb = min(found.limit_bytes / MIB, total_mb)
    sending = [
        Setting(
            code=f"DistributedDataParallel(model, bucket_cap_mb={limit_mb:g})"
            if found.limit_us < found.default_us
            else "DistributedDataParallel(model)",
            why="buckets of one limit, which torch takes as a setting"
            if found.limit_us < found.default_us
            else "no limit of buckets is better than torch's default",
            step_us=min(found.limit_us, found.default_us),
        ),
        Setting(
            code=f'daceml.DistDataParallel(model, buckets="{plan_file}")',
            why=f"the {len(buckets)} buckets that were found",
            step_us=found.step_us,
        ),
    ]
    return Advice(
        settings=(
            *map(_setting, strategy.chosen.choices),
            *_fusions(strategy),
            *(sending if buckets else ()),
        ),
        buckets=buckets,
        limit_mb=limit_mb,
        default_us=found.default_us,
        limit_us=found.limit_us,
        found_us=found.step_us,
    )


def _setting(choice: Choice) -> Setting:
    if isinstance(choice, GradientAccumulation):
        return Setting(
            code=f"with model.no_sync(): ...  # around all but the last of {choice.batches} smaller batches",
            why=choice.name,
        )
    if isinstance(choice, Recomputation):
        return Setting(
            code="torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False)  # of each block",
            why=choice.name,
        )
    if isinstance(choice, Sharding):
        return Setting(code=_SHARDING[choice.level], why=choice.name)
    if isinstance(choice, MixedPrecision):
        return Setting(
            code='with torch.autocast("cuda", torch.bfloat16): ...  # around forward and loss',
            why=choice.name,
        )
    return Setting(code=choice.name, why="a choice that was registered with register_choice")


def _fusions(strategy: Strategy) -> Sequence[Setting]:
    """Computations that the search fused."""
    found = strategy.found
    names = [
        " * ".join(name for one in found.step.computations[first:end] for name in one.members or (one.name,))
        for first, end in found.plan.ranges_of_groups
        if end > first + 1
    ]
    if not names:
        return ()
    return (
        Setting(
            code="daceml.compile(model)",
            why=f"{len(names)} fusions of operators were chosen, which its recipe makes: {names[0]}"
            + (", ..." if len(names) > 1 else ""),
        ),
    )
