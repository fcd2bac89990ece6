"""CUDA graphs: the launches of a program are captured once for each kind of inputs, and replayed.

A graph reads and writes memory at fixed addresses. So inputs are copied to where it reads, and results from
where it writes; only what a forward pass keeps for its backward pass is lent as it is and read where it lies,
and autograd refuses a backward pass whose saved values a later replay has overwritten.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch

log = logging.getLogger(__name__)

Call = Callable[[list[torch.Tensor]], list[torch.Tensor]]
Key = tuple[Any, ...]


@dataclass(frozen=True, kw_only=True)
class Captured:
    """What a capture has made.

    Attributes:
        inputs: where the graph reads.
        outputs: where it writes.
        replay: launches it on the current stream.
        addresses: of the weights, as a number.
    """

    inputs: list[torch.Tensor]
    outputs: list[torch.Tensor]
    replay: Callable[[], None]
    addresses: int


Capture = Callable[[Call, list[torch.Tensor]], tuple[list[torch.Tensor], Callable[[], None]]]


# torch captures one graph at a time
_capturing = threading.Lock()


def capture_graph(call: Call, inputs: list[torch.Tensor]) -> tuple[list[torch.Tensor], Callable[[], None]]:
    """The outputs of a call that is captured and not run, and what runs it."""
    graph = torch.cuda.CUDAGraph()
    # other threads, of data loaders for example, may go on with calls that a capture cannot have
    with _capturing, torch.cuda.graph(graph, stream=torch.cuda.Stream(), capture_error_mode="thread_local"):
        outputs = call(inputs)
    return outputs, graph.replay


@dataclass
class _Kind:
    """Calls with inputs of the same shapes.

    Attributes:
        standing: inputs that may be read where they lie, while they stay there.
        addresses: of the inputs of the last call.
        warm: calls that have run as they are.
    """

    standing: frozenset[int]
    addresses: tuple[int, ...] = ()
    warm: int = 0
    captured: Captured | None = None
    refused: bool = False


class Replays:
    """The captured calls of one program.

    The first call for inputs of a kind runs as it is, since libraries make their handles and drivers load
    kernels then; the second is captured. When a weight has moved, its graph is captured again. Calls that
    cannot be captured, since an operator waits for the device, run as they are.

    What another program's replays lend lies at one place from their second call on. So a program that has
    standing inputs is captured at its third call, and reads those of them in place that lay there before.
    One that is found elsewhere later is copied from then on.

    Args:
        lent: outputs that are not copied.
        standing: inputs that likely lie where they lay at the last call, as weights and lent outputs do.
        capture: makes a graph of a call.
    """

    def __init__(
        self,
        lent: Collection[int] = (),
        standing: Collection[int] = (),
        capture: Capture = capture_graph,
    ) -> None:
        self._lent, self._standing, self._capture = frozenset(lent), frozenset(standing), capture
        self._kinds: dict[Key, _Kind] = {}
        self._lock = threading.Lock()
        self._last: Any = None

    def __call__(self, call: Call, inputs: Sequence[torch.Tensor], addresses: int) -> list[torch.Tensor]:
        """Outputs of a call.

        Args:
            call: the program, without graphs.
            addresses: a number that changes when a weight moves.
        """
        key = tuple(x.shape for x in inputs)
        with self._lock, _on_device_of(inputs):
            kind = self._kinds.setdefault(key, _Kind(standing=self._standing))
            before, kind.addresses = kind.addresses, tuple(x.data_ptr() for x in inputs)
            if kind.refused or kind.warm < (2 if self._standing else 1):
                kind.warm += 1
                return call(list(inputs))
            still = kind.captured.inputs if kind.captured is not None else None
            lay = before if still is None else tuple(x.data_ptr() for x in still)
            moved = {place for place in kind.standing if kind.addresses[place] != lay[place]}
            kind.standing -= moved
            if kind.captured is None or kind.captured.addresses != addresses or moved:
                kind.captured = None  # whose memory the next capture may have
                kind.captured = self._begin(call, inputs, addresses, kind.standing)
            if kind.captured is None:
                kind.refused = True
                return call(list(inputs))
            return self._replay(kind.captured, inputs)

    def _begin(
        self, call: Call, inputs: Sequence[torch.Tensor], addresses: int, standing: Collection[int]
    ) -> Captured | None:
        places = [x if place in standing else x.clone() for place, x in enumerate(inputs)]
        try:
            outputs, replay = self._capture(call, places)
        except torch.OutOfMemoryError:
            raise  # of this call; another may have room
        except RuntimeError as error:
            log.warning("calls are not replayed: %s", str(error).partition("\n")[0])
            return None
        return Captured(inputs=places, outputs=outputs, replay=replay, addresses=addresses)

    def _replay(self, known: Captured, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        self._follow()
        for place, given in zip(known.inputs, inputs, strict=True):
            if place.data_ptr() != given.data_ptr():
                place.copy_(given)
        known.replay()
        lent = [known.outputs[place] for place in self._lent]
        if lent:
            torch.autograd.graph.increment_version(lent)
        return [y if place in self._lent else y.clone() for place, y in enumerate(known.outputs)]

    def _follow(self) -> None:
        """Let the current stream wait for that of the last replay, which uses the same memory."""
        if not torch.cuda.is_available():
            return
        stream = torch.cuda.current_stream()
        if self._last is not None and self._last != stream:
            stream.wait_stream(self._last)
        self._last = stream


def _on_device_of(inputs: Sequence[torch.Tensor]) -> AbstractContextManager[object]:
    """Makes the device of the inputs the current one."""
    if not inputs or inputs[0].device.type != "cuda":
        return nullcontext()
    return torch.cuda.device(inputs[0].device)
