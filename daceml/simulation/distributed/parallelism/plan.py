"""A plan of parallelism: how many ranks share what, and which rank stands where."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Literal, get_args

from daceml.errors import ParallelPlanError

ScheduleName = Literal["gpipe", "1f1b", "interleaved"]
Recomputation = Literal["none", "layers"]


@dataclass(frozen=True, kw_only=True)
class ParallelPlan:
    """Degrees of parallelism, batches, and the order of a pipeline's work.

    Ranks are numbered as Megatron-LM does (Narayanan et al., SC '21): those of one tensor-parallel group
    follow each other, then replicas, then stages.

    Attributes:
        data: replicas of the model.
        tensor: ranks that share each layer.
        pipeline: stages, each with as many layers as the others.
        micro_batch: samples that go through a stage at once.
        global_batch: samples of a step, over all replicas.
        schedule: of the pipeline: all forward first, one forward one backward, or that interleaved.
        chunks: of layers on each stage; more than one is what `interleaved` is for.
        recomputation: "layers" keeps the input of each layer and runs its forward again before its backward.
        bucket_bytes: of gradients, after which they are reduced while the last backward goes on; None reduces
            all of a stage at once, behind it.
    Raises:
        ParallelPlanError: degrees, batches or chunks that do not fit together, or words that say nothing.
    """

    data: int = 1
    tensor: int = 1
    pipeline: int = 1
    micro_batch: int = 1
    global_batch: int = 1
    schedule: ScheduleName = "1f1b"
    chunks: int = 1
    recomputation: Recomputation = "none"
    bucket_bytes: float | None = None

    def __post_init__(self) -> None:
        counts = (self.data, self.tensor, self.pipeline, self.micro_batch, self.global_batch, self.chunks)
        if min(counts) < 1:
            raise ParallelPlanError(
                "a degree, a batch or a number of chunks is below one",
                where=self.text,
                fix="give 1 for what is not shared",
            )
        for name, value, known in (
            ("schedule", self.schedule, get_args(ScheduleName)),
            ("recomputation", self.recomputation, get_args(Recomputation)),
        ):
            if value not in known:
                raise ParallelPlanError(
                    f"{name}={value!r}", where=self.text, fix="give one of " + ", ".join(known)
                )
        if self.bucket_bytes is not None and not 0 < self.bucket_bytes < inf:
            raise ParallelPlanError(
                f"a bucket of {self.bucket_bytes} bytes",
                where=self.text,
                fix="give a number above zero, or None to reduce all gradients at once",
            )
        if self.global_batch % (self.data * self.micro_batch):
            raise ParallelPlanError(
                f"{self.global_batch} samples are no whole micro-batches on every replica",
                where=self.text,
                why=f"{self.data} replicas x {self.micro_batch} samples at once do not divide them",
                fix="choose a global batch that is a multiple of both",
            )
        if (self.chunks > 1) != (self.schedule == "interleaved"):
            raise ParallelPlanError(
                f"schedule {self.schedule!r} with {self.chunks} chunks of layers on a stage",
                where=self.text,
                fix="give two chunks or more to 'interleaved', and one to the others",
            )
        if self.chunks > 1 and (self.pipeline == 1 or self.micro_batches % self.pipeline):
            raise ParallelPlanError(
                f"{self.micro_batches} micro-batches cannot be interleaved on {self.pipeline} stages",
                where=self.text,
                why="they go through the chunks in groups of as many as there are stages",
                fix="choose two stages or more, and a multiple of them as micro-batches; or schedule '1f1b'",
            )

    @property
    def text(self) -> str:
        """As people write it."""
        return (
            f"data {self.data} x tensor {self.tensor} x pipeline {self.pipeline},"
            f" micro-batch {self.micro_batch} of {self.global_batch}"
        )

    @property
    def ranks(self) -> int:
        """In all."""
        return self.data * self.tensor * self.pipeline

    @property
    def micro_batches(self) -> int:
        """That each replica computes in a step."""
        return self.global_batch // (self.data * self.micro_batch)

    def rank(self, *, data: int = 0, tensor: int = 0, stage: int = 0) -> int:
        """The number of the rank at a place."""
        return tensor + self.tensor * (data + self.data * stage)

    def tensor_group(self, *, data: int, stage: int) -> tuple[int, ...]:
        """Ranks that share layers."""
        return tuple(self.rank(data=data, tensor=t, stage=stage) for t in range(self.tensor))

    def data_group(self, *, tensor: int, stage: int) -> tuple[int, ...]:
        """Ranks that hold the same parameters."""
        return tuple(self.rank(data=d, tensor=tensor, stage=stage) for d in range(self.data))

    def layers_of(self, layers: int, *, stage: int, chunk: int = 0) -> range:
        """Numbers of the layers that a chunk of a stage holds.

        Raises:
            ParallelPlanError: the stages cannot hold equally many.
        """
        parts = self.pipeline * self.chunks
        if layers % parts:
            raise ParallelPlanError(
                f"{layers} layers are not divided by {self.pipeline} stages of {self.chunks} chunks",
                where=self.text,
                fix="choose stages and chunks whose product divides the layers",
            )
        each = layers // parts
        first = (chunk * self.pipeline + stage) * each
        return range(first, first + each)
