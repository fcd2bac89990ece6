"""What a dispatch mode sees of a step: calls with their operands and results, gradients, and memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from daceml.operations.database.records import Operand, Operation
from daceml.operations.measuring.calls import call_of, tensor_of
from daceml.operations.measuring.model_calls import without_ranges
from daceml.operations.work.operator_work import work_of
from daceml.prediction.capture.layers import Layers
from daceml.prediction.capture.processor_workspace import has_unknown_workspace, workspace_bytes
from daceml.prediction.live_bytes import BLOCK_BYTES, LiveBytes
from daceml.prediction.model_step import StepOperation, StepPhase

Memories = tuple[int, ...]

_NO_OPERATOR = ("prim", "profiler")  # namespaces of what asks for a device, or marks a range
_RECURRENT = "recurrent layers keep memory that oneDNN allocates and does not report: the peak is larger"


class Collector(TorchDispatchMode):
    """Sees every call below autograd, as a device would."""

    def __init__(self, layers: Layers, *, processor: bool = False) -> None:
        super().__init__()
        self.live = LiveBytes(block_bytes=1 if processor else BLOCK_BYTES)
        self._processor = processor
        self.notes: dict[str, None] = {}
        self.phase: StepPhase | None = None
        self._layers = layers
        self._known: dict[Any, tuple[Operation, tuple[Operand, ...]]] = {}
        self.seen: list[tuple[Operation, tuple[Operand, ...], StepPhase, str, Memories, Memories]] = []
        self._memories: dict[int, int] = {}
        self._count = 0
        self._ready: dict[int, list[str]] = {}
        self._owners: dict[int, str] = {}

    def hold(self, tensor: torch.Tensor) -> None:
        storage = tensor.untyped_storage()
        self.live.add(storage, storage.nbytes())

    def watch(self, trained: Mapping[str, nn.Parameter]) -> None:
        """Note when each parameter's gradient is complete: behind the last call before its accumulation."""

        def seen(name: str) -> Callable[[Any], None]:
            return lambda _: self._ready.setdefault(len(self.seen) - 1, []).append(name)

        for name, parameter in trained.items():
            parameter.register_post_accumulate_grad_hook(seen(name))
            self._owners[id(parameter)] = name.rpartition(".")[0]

    def finished(self) -> Iterable[StepOperation]:
        """All calls that were seen."""
        # the last accumulation of a parameter that several layers share completes its gradient
        last = {name: place for place, names in sorted(self._ready.items()) for name in names}
        for place, (operation, results, phase, layer, reads, writes) in enumerate(self.seen):
            ready = tuple(name for name in self._ready.get(place, ()) if last[name] == place)
            work = work_of(operation, results)
            yield StepOperation(
                operation=operation, results=results, work=work, phase=phase, layer=layer, ready=ready,
                reads=reads, writes=writes,
            )  # fmt: skip

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if self.phase == "optimizer" and func is torch.ops.aten._local_scalar_dense.default:
            return 100.0  # the count of steps, which a fake tensor does not have: in the middle of a run
        result = func(*args, **(kwargs or {}))
        reads, writes = self._numbers((args, kwargs)), self._numbers(result, besides=(args, kwargs))
        for one in pytree.tree_leaves(result):
            if isinstance(one, FakeTensor):
                self.hold(one)
        if self._processor:
            self.live.add_for_a_moment(workspace_bytes(func, args, result))
            if has_unknown_workspace(func):
                self.notes[_RECURRENT] = None
        if self.phase is not None and func.namespace not in _NO_OPERATOR:
            told = self._described(func, args, kwargs or {}, result)
            # counts of steps are scalars on the host
            if self.phase != "optimizer" or any(one.shape for one in told[0].operands):
                self.seen.append((*told, self.phase, self._layer(), reads, writes))
                self.live.operation = len(self.seen)
        return result

    def _numbers(self, values: Any, besides: Any = ()) -> Memories:
        """Of the memories of tensors, in their order.

        Args:
            besides: whose memories a result may share; any other one is new, though an old one's place may be
                used again.
        """
        shared = {_place(one) for one in pytree.tree_leaves(besides) if isinstance(one, torch.Tensor)}
        found: list[int] = []
        for one in pytree.tree_leaves(values):
            if isinstance(one, torch.Tensor):
                place = _place(one)
                if place not in self._memories or (besides and place not in shared):
                    self._memories[place] = self._count
                    self._count += 1
                found.append(self._memories[place])
        return tuple(found)

    def _described(
        self, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], result: Any
    ) -> tuple[Operation, tuple[Operand, ...]]:
        call = call_of(func, args, kwargs, ranges=False)
        key = without_ranges(call)
        if key not in self._known:
            tensors = (one for one in pytree.tree_leaves(result) if isinstance(one, torch.Tensor))
            self._known[key] = (
                call.operation(),
                tuple(tensor_of(one, ranges=False).operand() for one in tensors),
            )
        return self._known[key]

    def _layer(self) -> str:
        node: Any = torch._C._current_autograd_node()  # pyright: ignore[reportPrivateUsage]
        if node is None or self._layers.current:
            # a forward pass that is repeated in the backward phase is inside modules again
            return self._layers.current
        return self._owners.get(id(getattr(node, "variable", None))) or self._layers.of_node(node)


def _place(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage()._cdata  # pyright: ignore[reportPrivateUsage]


def bytes_of(tensor: torch.Tensor) -> int:
    """Of its elements."""
    return tensor.numel() * tensor.element_size()
