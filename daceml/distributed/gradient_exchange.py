"""What runs the all-reduces of a module's backward programs: takes gradients over, and gives their averages.

A bucket is a tensor of its own, kept from one backward pass to the next, so that another thread never works
on a program's memory: a program that fails may go away while its all-reduces are under way.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch

from daceml.distributed.agreement import await_first_programs
from daceml.distributed.bucket_tensor import BucketTensor
from daceml.distributed.collectives.group import Group, Work
from daceml.distributed.collectives.heartbeat import Heartbeat
from daceml.errors import DacemlError, RankFailedError
from daceml.runtime.launcher import AllReduceFunction
from daceml.runtime.program import Program
from daceml.runtime.records.gradients import BucketRecord


@dataclass(kw_only=True)
class _UnderWay:
    """An all-reduce that has begun; without `work` gradients only pass through."""

    bucket: int
    record: BucketRecord
    tensor: BucketTensor
    work: Work | None
    number: int


@dataclass(kw_only=True)
class _Backward:
    """What one backward pass adds to what the program gives.

    Attributes:
        synchronizing: whether it averages.
        elsewhere: parameter -> average, of those of which the program has no gradient.
        sent: parameters whose gradients of `no_sync` were sent along.
    """

    synchronizing: bool
    elsewhere: dict[str, torch.Tensor] = field(default_factory=dict[str, torch.Tensor])
    sent: set[str] = field(default_factory=set[str])


class BucketExchange:
    """Averages gradients over the ranks of a group.

    Args:
        parameters: key -> the module's parameter, of all that may have a gradient.
        timeout_s: after which a rank that does not come has failed.
    Attributes:
        synchronizing: whether backward passes of the calls from now on average: see `no_sync`.
        failure: why a rank cannot go on; every later backward pass raises it again.
    """

    def __init__(
        self, group: Group, heartbeat: Heartbeat, parameters: Mapping[str, torch.Tensor], timeout_s: float
    ) -> None:
        self.group, self.heartbeat, self.timeout_s = group, heartbeat, timeout_s
        self.parameters = dict(parameters)
        self.synchronizing = True
        self.failure: DacemlError | None = None
        self._backward = _Backward(synchronizing=True)
        self._pending = False  # whether a gradient of `no_sync` waits for its average
        self._kept: dict[tuple[str, ...], list[BucketTensor]] = {}
        self._under_way: dict[int, _UnderWay] = {}
        self._tickets = 0

    @property
    def ranks(self) -> str:
        """How many ranks there are, and the library that connects them."""
        return f"{self.group.size} ranks through {self.group.name}"

    def attach(self, program: Program, buckets: Sequence[BucketRecord]) -> None:
        """Run the all-reduces of a program from now on."""

        def run(waits: int, number: int, arrays: int, elements: int, count: int, dtype: int) -> int:
            try:
                addresses = (ctypes.c_void_p * count).from_address(arrays) if count else ()
                given = [address or 0 for address in addresses]
                return self._wait(number, given) if waits else self._begin(buckets, number, given)
            except DacemlError as error:
                self.failure = error
            except Exception as error:
                # nothing may be raised into C; whoever runs the program raises it
                self.failure = self._failed(error, "an all-reduce")
            return -1

        program.exchange_through(AllReduceFunction(run))

    @contextmanager
    def backward(self, *, synchronizing: bool) -> Generator[_Backward]:
        """One run of a backward program.

        Raises:
            RankFailedError: a rank has ended or does not come.
        """
        if self.failure is not None:
            raise self.failure
        now = self._backward = _Backward(synchronizing=synchronizing)
        try:
            yield now
        except DacemlError:
            if self.failure is not None:
                raise self.failure from None
            raise
        if not synchronizing:
            self._pending = True
        elif self._pending:
            self._finish_pending()

    def send_from_first(self, tensors: Iterable[torch.Tensor]) -> None:
        """Overwrite tensors with those of rank 0, all of one type in one message.

        Raises:
            RankFailedError: a rank has ended or does not come.
        """
        kinds: dict[tuple[torch.dtype, torch.device], list[torch.Tensor]] = {}
        for tensor in tensors:
            if tensor.numel():
                kinds.setdefault((tensor.dtype, tensor.device), []).append(tensor)
        with torch.no_grad():
            for same in kinds.values():
                flat = torch.cat([tensor.detach().reshape(-1) for tensor in same])
                try:
                    self.group.broadcast(flat).wait(self.timeout_s)
                except (TimeoutError, RuntimeError) as error:
                    self.failure = self._failed(error, "a broadcast of rank 0's tensors")
                    raise self.failure from error
                for tensor, part in zip(same, flat.split([t.numel() for t in same]), strict=True):
                    tensor.copy_(part.view(tensor.shape))

    # ---- steps of programs

    def _begin(self, buckets: Sequence[BucketRecord], number: int, addresses: Sequence[int]) -> int:
        record, now = buckets[number], self._backward
        kept = self._kept.get(record.parameters)
        bucket = kept.pop() if kept else BucketTensor(record, self.parameters)
        bucket.take(record, addresses)
        work = None
        if now.synchronizing:
            if self._pending:
                self._take_pending(record, bucket)
            bucket.scale(1 / self.group.size)
            if not self.heartbeat.begun:
                await_first_programs(self.heartbeat)
            self.heartbeat.begun += 1
            self.heartbeat.doing = f"all-reduce of bucket {number + 1} of {len(buckets)}"
            work = self.group.all_reduce(bucket.tensor)
        self._tickets += 1
        self._under_way[self._tickets] = _UnderWay(
            bucket=number, record=record, tensor=bucket, work=work, number=self.heartbeat.begun
        )
        return self._tickets

    def _wait(self, ticket: int, addresses: Sequence[int]) -> int:
        under_way = self._under_way.pop(ticket)
        record, bucket = under_way.record, under_way.tensor
        if under_way.work is not None:
            try:
                under_way.work.wait(self.timeout_s)
            except (TimeoutError, RuntimeError) as error:
                where = f"all-reduce {under_way.number}, of bucket {under_way.bucket + 1}"
                raise self._failed(error, where) from error
            self._take_elsewhere(record, bucket)
        bucket.give(record, addresses)
        self._kept.setdefault(record.parameters, []).append(bucket)
        return 0

    def _take_pending(self, record: BucketRecord, bucket: BucketTensor) -> None:
        """Gradients of `no_sync` are averaged with those of this pass."""
        for key in record.parameters:
            held = self.parameters[key].grad
            if held is not None:
                bucket.views[key].add_(held)
                bucket.own(key)
                self._backward.sent.add(key)

    def _take_elsewhere(self, record: BucketRecord, bucket: BucketTensor) -> None:
        """Averages of gradients that this program does not have, and that some rank does."""
        if len(record.present) == len(record.parameters):
            return
        for key, owners in zip(record.parameters, bucket.owners.tolist(), strict=True):
            if owners and key not in record.present:
                self._backward.elsewhere[key] = bucket.views[key].clone()

    def _finish_pending(self) -> None:
        """Gradients of `no_sync` are in the averages now, and autograd adds these to none."""
        self._pending = False
        for key in self._backward.sent:
            self.parameters[key].grad = None

    # ---- failures

    def _failed(self, error: BaseException, what: str) -> RankFailedError:
        self.group.give_up()
        found = self.heartbeat.problem(what)
        told = f"{self.group.name}: {_first_sentence(error)}"
        if found is None:
            who, why = "a rank", "every rank gives signs of life and has begun as much as this one"
        else:
            who, why = _ranks(found[0]), found[1]
        return RankFailedError(
            f"{who} failed, and gradients cannot be averaged",
            where=f"rank {self.group.rank} of {self.group.size}, {what}",
            why=f"{why}\n{told}",
            fix=f"look at what {who} has written last, and start the job again;\n"
            "ranks that need longer for a step: pass timeout_s=... to DistDataParallel",
        )


def _first_sentence(error: BaseException) -> str:
    """What a library says, without its source lines and advice."""
    line = (str(error).strip().splitlines() or [type(error).__name__])[0]
    return re.sub(r"^\[\S+:\d+\] ", "", line).partition(". ")[0]


def _ranks(ranks: Sequence[int]) -> str:
    return ("rank " if len(ranks) == 1 else "ranks ") + ", ".join(map(str, ranks))
