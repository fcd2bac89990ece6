"""What runs the all-reduces of a module's backward programs: takes gradients over, and gives their averages.

A bucket is one tensor of this object's own, so nothing of a program's memory is in use by another thread: the
gradients one after the other, each in row-major order and divided by the number of ranks, then one number for
each, 1 where this rank has the gradient. Their sum tells how many ranks have, which need not be asked.
"""

from __future__ import annotations

import ctypes
import logging
import math
import re
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch

from daceml.errors import DacemlError, RankFailedError
from daceml.frontend.gradient_record import BucketRecord
from daceml.runtime.collectives.group import Group, Work
from daceml.runtime.collectives.heartbeat import Heartbeat
from daceml.runtime.collectives.memory import tensor_at
from daceml.runtime.launcher import AllReduceFunction
from daceml.runtime.program import Program

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class _Slot:
    """Where a parameter's gradient lies in a bucket."""

    parameter: str
    start: int
    shape: torch.Size

    def of(self, bucket: torch.Tensor) -> torch.Tensor:
        return bucket[self.start : self.start + math.prod(self.shape)].view(self.shape)


@dataclass(kw_only=True)
class _UnderWay:
    """An all-reduce that has begun; without `work` gradients only pass through."""

    bucket: int
    record: BucketRecord
    tensor: torch.Tensor
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


class GradientExchange:
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
        self._tensors: dict[tuple[str, ...], list[torch.Tensor]] = {}
        self._under_way: dict[int, _UnderWay] = {}
        self._tickets = 0

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

    # ---- steps of programs

    def _begin(self, buckets: Sequence[BucketRecord], number: int, addresses: Sequence[int]) -> int:
        record = buckets[number]
        slots = self._slots(record)
        tensor = self._take(record, slots)
        synchronizing = self._backward.synchronizing
        scale = 1 / self.group.size if synchronizing else 1.0
        given = dict(zip(record.present, zip(addresses, record.strides, strict=True), strict=True))
        owned: list[float] = []
        for slot in slots:
            into, held = slot.of(tensor), self.parameters[slot.parameter].grad if self._pending else None
            if slot.parameter in given:
                address, strides = given[slot.parameter]
                source = tensor_at(address, slot.shape, strides, tensor.dtype, tensor.device)
                torch.mul(source, scale, out=into)
            else:
                into.zero_()
            if synchronizing and held is not None:
                into.add_(held, alpha=scale)
                self._backward.sent.add(slot.parameter)
            owned.append(float(slot.parameter in given or (synchronizing and held is not None)))
        tensor[-len(slots) :].copy_(torch.tensor(owned))
        self._tickets += 1
        work = None
        if synchronizing:
            self.heartbeat.begun += 1
            self.heartbeat.doing = f"all-reduce of bucket {number + 1} of {len(buckets)}"
            work = self.group.all_reduce(tensor)
        self._under_way[self._tickets] = _UnderWay(
            bucket=number, record=record, tensor=tensor, work=work, number=self.heartbeat.begun
        )
        return self._tickets

    def _wait(self, ticket: int, addresses: Sequence[int]) -> int:
        under_way = self._under_way.pop(ticket)
        record, tensor = under_way.record, under_way.tensor
        if under_way.work is not None:
            try:
                under_way.work.wait(self.timeout_s)
            except (TimeoutError, RuntimeError) as error:
                where = f"all-reduce {under_way.number}, of bucket {under_way.bucket + 1}"
                raise self._failed(error, where) from error
        slots = self._slots(record)
        place = dict(zip(record.present, zip(addresses, record.strides, strict=True), strict=True))
        for slot in slots:
            if slot.parameter in place:
                address, strides = place[slot.parameter]
                into = tensor_at(address, slot.shape, strides, tensor.dtype, tensor.device)
                into.copy_(slot.of(tensor))
        if under_way.work is not None:
            self._take_elsewhere(record, slots, tensor)
        self._tensors.setdefault(record.parameters, []).append(tensor)
        return 0

    def _take_elsewhere(self, record: BucketRecord, slots: Sequence[_Slot], tensor: torch.Tensor) -> None:
        """Averages of gradients that this program does not have, and other ranks do."""
        absent = set(record.parameters).difference(record.present)
        if not absent:
            return
        owners = tensor[-len(slots) :].tolist()
        for slot, count in zip(slots, owners, strict=True):
            if slot.parameter in absent and count:
                self._backward.elsewhere[slot.parameter] = slot.of(tensor).clone()

    def _finish_pending(self) -> None:
        """Gradients of `no_sync` are in the averages now, and autograd adds these to none."""
        self._pending = False
        for key in self._backward.sent:
            self.parameters[key].grad = None

    # ---- buckets

    def _slots(self, record: BucketRecord) -> list[_Slot]:
        slots: list[_Slot] = []
        start = 0
        for key in record.parameters:
            shape = self.parameters[key].shape
            slots.append(_Slot(parameter=key, start=start, shape=shape))
            start += math.prod(shape)
        return slots

    def _take(self, record: BucketRecord, slots: Sequence[_Slot]) -> torch.Tensor:
        """The tensor of a bucket, kept from one backward pass to the next."""
        kept = self._tensors.get(record.parameters)
        if kept:
            return kept.pop()
        like = self.parameters[record.parameters[0]]
        elements = slots[-1].start + math.prod(slots[-1].shape) + len(slots)
        return torch.empty(elements, dtype=like.dtype, device=like.device)

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
