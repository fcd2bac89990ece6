"""Pipeline schedules: in which order each stage works on micro-batches.

Sources: Huang et al., GPipe (NeurIPS '19); Narayanan et al., PipeDream (SOSP '19) for one forward, one
backward, here with a flush at the end of the step; Narayanan et al., Efficient Large-Scale Language Model
Training on GPU Clusters Using Megatron-LM (SC '21), section 2.2, for both with several chunks of layers.
"""

from __future__ import annotations

from dataclasses import dataclass

from daceml.simulation.distributed.parallelism.plan import ParallelPlan


@dataclass(frozen=True, kw_only=True)
class Slot:
    """A micro-batch on its way through a chunk of a stage, forward or backward."""

    micro_batch: int
    forward: bool
    chunk: int = 0


def schedule_of(plan: ParallelPlan) -> tuple[tuple[Slot, ...], ...]:
    """[stages] each, what it works on, in order."""
    stages, micro_batches = plan.pipeline, plan.micro_batches
    if plan.schedule == "gpipe":
        return tuple(_all_forward_first(micro_batches) for _ in range(stages))
    if plan.schedule == "1f1b":
        forward = [Slot(micro_batch=number, forward=True) for number in range(micro_batches)]
        backward = [Slot(micro_batch=number, forward=False) for number in range(micro_batches)]
        # every stage keeps as many micro-batches as there are stages behind it, and itself
        return tuple(_alternating(forward, backward, ahead=stages - stage - 1) for stage in range(stages))
    return tuple(_interleaved(stage, stages, micro_batches, plan.chunks) for stage in range(stages))


def _all_forward_first(micro_batches: int) -> tuple[Slot, ...]:
    forward = (Slot(micro_batch=number, forward=True) for number in range(micro_batches))
    backward = (Slot(micro_batch=number, forward=False) for number in reversed(range(micro_batches)))
    return (*forward, *backward)


def _alternating(forward: list[Slot], backward: list[Slot], *, ahead: int) -> tuple[Slot, ...]:
    """So many forward first, then one of each as long as there are both, then what is left backward."""
    ahead = min(ahead, len(forward))
    steady = len(forward) - ahead
    pairs = (slot for pair in zip(forward[ahead:], backward[:steady], strict=True) for slot in pair)
    return (*forward[:ahead], *pairs, *backward[steady:])


def _interleaved(stage: int, stages: int, micro_batches: int, chunks: int) -> tuple[Slot, ...]:
    """Groups of as many micro-batches as stages go through all chunks before the next group begins."""

    def slot(number: int, *, forward: bool) -> Slot:
        group, within = divmod(number, stages * chunks)
        chunk, offset = divmod(within, stages)
        return Slot(
            micro_batch=group * stages + offset,
            forward=forward,
            chunk=chunk if forward else chunks - 1 - chunk,
        )

    total = micro_batches * chunks
    forward = [slot(number, forward=True) for number in range(total)]
    backward = [slot(number, forward=False) for number in range(total)]
    return _alternating(forward, backward, ahead=2 * (stages - stage - 1) + (chunks - 1) * stages)
