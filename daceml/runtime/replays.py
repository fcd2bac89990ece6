"""CUDA graphs: the launches of a program are captured once for each kind of inputs, and replayed.

A graph reads and writes memory at fixed addresses. So inputs are copied to where it reads, and results from
where it writes; only what a forward pass keeps for its backward pass is lent as it is, and autograd refuses a
backward pass whose saved values a later replay has overwritten.
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


class Replays:
    """The captured calls of one program.

    The first call for inputs of a kind runs as it is, since libraries make their handles and drivers load
    kernels then; the second is captured. When a weight has moved, its graph is captured again. Calls that
    cannot be captured, since an operator waits for the device, run as they are.

    Args:
        lent: outputs that are not copied.
        capture: makes a graph of a call.
    """

    def __init__(self, lent: Collection[int] = (), capture: Capture = capture_graph) -> None:
        self._lent, self._capture = frozenset(lent), capture
        self._warm: set[Key] = set()
        self._refused: set[Key] = set()
        self._captured: dict[Key, Captured] = {}
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
            if key not in self._warm or key in self._refused:
                self._warm.add(key)
                return call(list(inputs))
            known = self._captured.get(key)
            if known is None or known.addresses != addresses:
                known = self._begin(call, inputs, addresses)
                if known is None:
                    self._refused.add(key)
                    return call(list(inputs))
                self._captured[key] = known
            return self._replay(known, inputs)

    def _begin(self, call: Call, inputs: Sequence[torch.Tensor], addresses: int) -> Captured | None:
        places = [x.clone() for x in inputs]
        try:
            outputs, replay = self._capture(call, places)
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
