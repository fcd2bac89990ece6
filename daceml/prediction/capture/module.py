"""The operations of a step of a module, from shapes alone: nothing is allocated and nothing is computed.

Parameters, buffers and inputs are replaced by torch's fake tensors, which have sizes, types and strides but
no values. What a dispatch mode sees then is what a device would be asked to do: forward, backward and the
optimizer, as torch's eager mode calls it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils import _pytree as pytree

from daceml.errors import CaptureError, MeasurementError
from daceml.prediction.capture.as_on_devices import AsOnDevices, recurrent_layers_as_formulas
from daceml.prediction.capture.collector import Collector, bytes_of
from daceml.prediction.capture.layers import layers_seen
from daceml.prediction.capture.optimizers import MakeOptimizer, optimizer_of
from daceml.prediction.capture.phases import Phases, tensors_of
from daceml.prediction.model_step import PRECISIONS, ModelStep, Precision, StepMemory, StepParameter
from daceml.profiling.recording.layers import is_compiled

AUTOCAST: dict[str, torch.dtype] = {"bf16": torch.bfloat16, "fp16": torch.float16}

# what forward, a loss or an optimizer raises; a refusal of a call comes from `call_of`
_OF_THE_MODEL = (
    RuntimeError,
    TypeError,
    ValueError,
    LookupError,
    AttributeError,
    AssertionError,
    MeasurementError,
)
_AUTOCAST = "types are those of autocast on a processor, which keeps less in float32 than that of CUDA"


def capture_step(
    model: nn.Module,
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None = None,
    *,
    train: bool = True,
    loss: Callable[[Any], torch.Tensor] | None = None,
    optimizer: str | MakeOptimizer | None = "adam",
    precision: Precision = "fp32",
    processor: bool = False,
) -> ModelStep:
    """A training step, or a call without gradients, of a module as it is on any device.

    Args:
        model: with weights or on the meta device; nothing of it changes.
        args, kwargs: tensors on any device, of which only shapes, types and strides count.
        train: forward, backward and the optimizer; else forward in the mode that the module is in.
        loss: of the model's result; None takes its attribute `loss`, else the sum of all that it returns.
        optimizer: a name in torch.optim, or what makes one of parameters; None leaves it out.
        precision: of products: bf16 and fp16 by autocast, tf32 changes no type.
        processor: as torch calls it on a processor: parameters are updated one after the other, dropout and
            recurrent layers are formulas, and memory is not rounded to blocks. Else as on CUDA devices.
    Raises:
        CaptureError: the operations follow from values, or the model fails with such inputs.
    """
    _check(model, precision)
    with ExitStack() as stack:
        stack.enter_context(FakeTensorMode(allow_non_fake_inputs=True))
        stack.enter_context(_failures_said_once())
        if not processor:
            stack.enter_context(recurrent_layers_as_formulas())
        state, made = _without_values(model)
        given = pytree.tree_map_only(torch.Tensor, made, (tuple(args), dict(kwargs or {})))
        layers = stack.enter_context(layers_seen(model))
        collector = Collector(layers, processor=processor)
        for one in tensors_of((state, given)):
            collector.hold(one)
        trained = {name: one for name, one in state.items() if isinstance(one, nn.Parameter)}
        trained = {name: one for name, one in trained.items() if train and one.requires_grad}
        collector.watch(trained)
        if not processor:
            stack.enter_context(AsOnDevices(collector.notes))
        run = Phases(
            collector, given, train=train, loss=loss, autocast=AUTOCAST.get(precision), joined=not processor
        )
        try:
            making = optimizer_of(optimizer) if trained and optimizer is not None else None
            prepared = run.prepare(making, list(trained.values())) if making else None
            collector.live.begin()
            saved = run.forward_backward(model, state)
            if prepared is not None:
                run.optimize(prepared)
        except _OF_THE_MODEL as error:
            raise _failed(error) from error
        parameters = [one for one in state.values() if isinstance(one, nn.Parameter)]
        memory = StepMemory(
            parameters=sum(map(bytes_of, parameters)),
            buffers=sum(bytes_of(one) for one in state.values() if not isinstance(one, nn.Parameter)),
            gradients=sum(map(bytes_of, trained.values())),
            optimizer=run.optimizer_bytes,
            saved=saved,
            peak=collector.live.peak,
            allocations=collector.live.allocations(),
        )
    first = next(iter(tensors_of(given)), None)
    if precision in AUTOCAST:
        collector.notes[_AUTOCAST] = None
    return ModelStep(
        name=type(model).__name__,
        operations=tuple(collector.finished()),
        parameters=tuple(
            StepParameter(
                name=name,
                layer=name.rpartition(".")[0],
                size_bytes=bytes_of(one),
                element=str(one.dtype).removeprefix("torch."),
            )
            for name, one in trained.items()
        ),
        memory=memory,
        samples=int(first.shape[0]) if first is not None and first.ndim else None,
        notes=tuple(collector.notes),
    )


@contextmanager
def _failures_said_once() -> Generator[None]:
    """torch logs what it also raises, and what is raised becomes a refusal."""
    logger = logging.getLogger("torch._subclasses.fake_tensor")
    before = logger.disabled
    logger.disabled = True
    try:
        yield
    finally:
        logger.disabled = before


def _without_values(
    model: nn.Module,
) -> tuple[dict[str, torch.Tensor], Callable[[torch.Tensor], torch.Tensor]]:
    """Parameters and buffers without values, by name, and what makes any other tensor one."""

    def made(tensor: torch.Tensor) -> torch.Tensor:
        # on the processor, wherever it was, so that a model and what it makes itself are on one device
        found = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="cpu")
        return found.requires_grad_(tensor.requires_grad and tensor.is_leaf)

    state: dict[str, torch.Tensor] = {
        name: nn.Parameter(made(one), requires_grad=one.requires_grad)
        for name, one in model.named_parameters()
    }
    return state | {name: made(one) for name, one in model.named_buffers()}, made


def _check(model: nn.Module, precision: str) -> None:
    if precision not in PRECISIONS:
        raise CaptureError(f"there is no precision {precision!r}", fix=f"take {', '.join(PRECISIONS)}")
    if is_compiled(model):
        raise CaptureError(
            f"the operations of a compiled {type(model).__name__} are not torch's",
            why="it runs kernels of its own",
            fix="give the module that was compiled",
        )


def _failed(error: Exception) -> Exception:
    if isinstance(error, MeasurementError):
        return CaptureError(error.what, why=error.why, fix=error.fix)
    kind = type(error).__name__
    if kind in ("DataDependentOutputException", "DynamicOutputShapeException"):
        return CaptureError(
            "the model's operations follow from values",
            why=f"{error} needs them, and shapes have none",
            fix="take the value out of forward, or record a run with daceml.profile",
        )
    reason = str(error).strip().splitlines()[:1]
    return CaptureError(
        "the model fails with inputs of these shapes",
        why=f"{kind}: {reason[0]}" if reason else kind,
        fix="give shapes and types that a plain call of the model takes",
    )
