"""How far a network leaves its operands from the processor, and chains that leave them as far.

Copies of an operation on the same operands find them in the first cache. In a network, other tensors have
been touched since a weight was last read, and the memory of a result was last written a while ago. The bytes
between two touches decide which cache still has them (LRU stack distance; Mattson et al., IBM Systems Journal
1970). So one step of the network is observed, and a chain takes as many buffers in turn as give that
distance.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from math import log2
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from daceml.operations.measuring.batches import Timed
from daceml.operations.measuring.calls import Call, call_of
from daceml.operations.measuring.chains import forward_chain
from daceml.operations.measuring.model_calls import without_ranges
from daceml.operations.measuring.stopwatches import Stopwatch

_PAGE = 4096
_PASSES = 3  # the allocator's second answer differs from its first, and its third seldom from its second
_MOST_BUFFERS = 1024
_SWEPT = 4  # times the cache: what is replaced at random is then gone for all but 2 %


@dataclass(frozen=True, kw_only=True)
class Placed:
    """A call with the bytes that were touched since its operands were, and since its result's memory was.

    Attributes:
        distances: of each tensor; 0 where no more lies between than the call itself touches.
        result_distance: of the memory of the first result; 0 for views.
        result_bytes: of the first result.
        operator_distance: since the operator's code was executed, and its workspace was used.
        count: how often a step makes this call, so placed.
    """

    call: Call
    distances: tuple[int, ...]
    result_distance: int
    result_bytes: int = 0
    operator_distance: int = 0
    count: int = 1

    def buffers(self) -> tuple[int, ...]:
        """Of each tensor, so many that as many bytes are touched before one of them comes round again."""
        return tuple(self._turns(one) for one in self.distances)

    def results(self) -> int:
        return self._turns(self.result_distance)

    def chains(self, stopwatch: Stopwatch, *, cache_bytes: int) -> tuple[Timed, Timed | None]:
        """Copies whose operands are as far away as those of the network, and what to subtract.

        Args:
            cache_bytes: of the cache that a core has for itself, for data and code. An operator whose code
                has left it finds it gone in the chain, too: so many bytes are swept before each copy, and a
                second chain does nothing but sweep.
        """
        buffers, results = self.buffers(), self.results()
        if self.operator_distance <= cache_bytes:
            return forward_chain(self.call, stopwatch, buffers=buffers, results=results).timed, None
        room = torch.zeros(min(self.operator_distance, _SWEPT * cache_bytes) // 4)
        near = tuple(place for place, one in enumerate(self.distances) if not one)

        def sweep(tensors: Sequence[torch.Tensor]) -> None:
            room.add_(1.0)
            for place in near:  # what the operation before has just written
                tensors[place].sum()

        both = forward_chain(self.call, stopwatch, buffers=buffers, results=results, between=sweep)
        alone = forward_chain(
            self.call, stopwatch, buffers=buffers, results=results, between=sweep, only_between=True
        )
        return both.timed, alone.timed

    def _turns(self, distance: int) -> int:
        sizes = [one.bytes_touched for one, far in zip(self.call.tensors, self.distances, strict=True) if far]
        turning = max(1, sum(sizes) + (self.result_bytes if self.result_distance else 0))
        return min(_MOST_BUFFERS, max(1, -(-distance // turning)))


def placed_calls(step: Callable[[], Any]) -> tuple[Placed, ...]:
    """The calls of a step on a processor, in order of their first, equal ones counted.

    Args:
        step: is run three times; the last one is told of.
    """
    observer = _Observer()
    with observer:
        for _ in range(_PASSES):
            observer.seen.clear()
            step()
    counts: dict[Any, Placed] = {}
    for one in observer.seen:
        far = (*one.distances, one.result_distance, one.operator_distance)
        key = (without_ranges(one.call), *map(_octave, far))
        first = counts.get(key, one)
        counts[key] = replace(first, count=first.count + (key in counts))
    return tuple(counts.values())


class _Observer(TorchDispatchMode):
    """Knows of every page of memory when it was touched last."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Placed] = []
        self.touched: dict[int, int] = {}
        self.ran: dict[Any, int] = {}
        self.now = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        call = call_of(func, args, kwargs or {})
        result = func(*args, **(kwargs or {}))
        operands, results = _tensors((args, kwargs or {})), _tensors(result)
        if any(returned.alias_info is not None for returned in func._schema.returns):
            # a view touches nothing
            self.seen.append(Placed(call=call, distances=(0,) * len(operands), result_distance=0))
            return result
        held = sum(one.bytes_touched for one in call.tensors)
        ran = self.ran.get(func)
        self.seen.append(
            Placed(
                call=call,
                distances=tuple(self._distance(_pages(one), held) for one in operands),
                result_distance=self._distance(_pages(results[0]), held) if results else 0,
                result_bytes=results[0].nbytes if results else 0,
                operator_distance=0 if ran is None else self._since(ran),
            )
        )
        for one in (*operands, *results):
            self.now += 1
            self.touched |= dict.fromkeys(_pages(one), self.now)
        self.ran[func] = self.now
        return result

    def _distance(self, pages: Iterable[int], held: int) -> int:
        times = sorted(self.touched[page] for page in pages if page in self.touched)
        if not times:
            return 0
        found = self._since(times[len(times) // 2])
        return 0 if found <= held else found

    def _since(self, time: int) -> int:
        """Bytes that were touched after a time."""
        return _PAGE * sum(1 for one in self.touched.values() if one > time)


def _octave(distance: int) -> int:
    """Distances that differ by less than a factor of two are one: as far as the first of them."""
    return round(log2(distance)) if distance else 0


def _tensors(value: Any) -> Sequence[torch.Tensor]:
    return [one for one in tree_leaves(value) if isinstance(one, torch.Tensor)]


def _pages(tensor: torch.Tensor) -> Iterable[int]:
    if not tensor.numel():
        return ()
    steps = zip(tensor.shape, tensor.stride(), strict=True)
    last = sum((size - 1) * stride for size, stride in steps) * tensor.element_size()
    return range(tensor.data_ptr() // _PAGE, (tensor.data_ptr() + last) // _PAGE + 1)
