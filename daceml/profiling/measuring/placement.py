"""How far a network leaves its operands from the processor, and chains that leave them as far.

Copies of an operation on the same operands find them in the first cache. In a network, other tensors have been
touched since a weight was last read, and the memory of a result was last written a while ago. The bytes between
two touches decide which cache still has them (LRU stack distance; Mattson et al., IBM Systems Journal 1970). So
one step of the network is observed, and a chain takes as many buffers in turn as give that distance.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from daceml.profiling.measuring.calls import Call, call_of
from daceml.profiling.measuring.chains import Chain, forward_chain
from daceml.profiling.measuring.model_calls import without_ranges
from daceml.profiling.measuring.stopwatches import Stopwatch

_PAGE = 4096
_PASSES = 3  # the allocator's second answer differs from its first, and its third seldom from its second
_MOST_BUFFERS = 1024


@dataclass(frozen=True, kw_only=True)
class Placed:
    """A call with the bytes that were touched since its operands were, and since its result's memory was.

    Attributes:
        distances: of each tensor, rounded up to a power of two; 0 where nothing lies between.
        result_distance: of the memory of the first result; 0 for views.
        count: how often a step makes this call, so placed.
    """

    call: Call
    distances: tuple[int, ...]
    result_distance: int
    count: int = 1

    def buffers(self) -> tuple[int, ...]:
        """Of each tensor, so many that as many bytes are touched before one of them comes round again."""
        return tuple(_turns(one, self._bytes_a_copy) for one in self.distances)

    def results(self) -> int:
        return _turns(self.result_distance, self._bytes_a_copy)

    @property
    def _bytes_a_copy(self) -> int:
        return max(1, self.call.bytes_held)

    def chain(self, stopwatch: Stopwatch) -> Chain:
        """Copies whose operands are as far away as those of the network."""
        return forward_chain(self.call, stopwatch, buffers=self.buffers(), results=self.results())


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
        key = (without_ranges(one.call), one.distances, one.result_distance)
        before = counts.get(key)
        counts[key] = Placed(
            call=one.call,
            distances=one.distances,
            result_distance=one.result_distance,
            count=1 + (before.count if before else 0),
        )
    return tuple(counts.values())


class _Observer(TorchDispatchMode):
    """Knows of every page of memory when it was touched last."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Placed] = []
        self.touched: dict[int, int] = {}
        self.now = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        call = call_of(func, args, kwargs or {})
        result = func(*args, **(kwargs or {}))
        operands, results = _tensors((args, kwargs or {})), _tensors(result)
        held = call.bytes_held
        if any(returned.alias_info is not None for returned in func._schema.returns):
            # a view touches nothing
            self.seen.append(Placed(call=call, distances=(0,) * len(operands), result_distance=0))
            return result
        distances = [self._distance(one, held) for one in (*operands, *results[:1])]
        for one in (*operands, *results):
            self.now += 1
            self.touched |= dict.fromkeys(_pages(one), self.now)
        self.seen.append(
            Placed(
                call=call,
                distances=tuple(distances[: len(operands)]),
                result_distance=distances[len(operands)] if results else 0,
            )
        )
        return result

    def _distance(self, tensor: torch.Tensor, held: int) -> int:
        times = sorted(self.touched[page] for page in _pages(tensor) if page in self.touched)
        if not times:
            return 0
        last = times[len(times) // 2]
        found = _PAGE * sum(1 for one in self.touched.values() if one > last)
        return 0 if found <= held else 1 << (found - 1).bit_length()


def _turns(distance: int, bytes_a_copy: int) -> int:
    return min(_MOST_BUFFERS, max(1, -(-distance // bytes_a_copy)))


def _tensors(value: Any) -> Sequence[torch.Tensor]:
    return [one for one in tree_leaves(value) if isinstance(one, torch.Tensor)]


def _pages(tensor: torch.Tensor) -> Iterable[int]:
    if not tensor.numel():
        return ()
    steps = zip(tensor.shape, tensor.stride(), strict=True)
    last = sum((size - 1) * stride for size, stride in steps) * tensor.element_size()
    return range(tensor.data_ptr() // _PAGE, (tensor.data_ptr() + last) // _PAGE + 1)
