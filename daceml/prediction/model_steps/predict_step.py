"""`daceml.predict_step`: a step of a model on a listed device, from shapes alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from daceml.devices.catalogue import find_device
from daceml.devices.specification import Device
from daceml.errors import StepPredictionError
from daceml.operations.database.store import OpDatabase
from daceml.operations.duration_chain import DurationLadder
from daceml.operations.estimate import DurationSource
from daceml.prediction.model_step import ModelStep, Precision
from daceml.prediction.model_steps.host_cost import HostCost
from daceml.prediction.model_steps.step_prediction import StepPrediction, predict_captured
from daceml.simulation.network.links import Link
from daceml.simulation.network.measured import MeasuredCollective
from daceml.simulation.whatif.optimization import Estimate

if TYPE_CHECKING:
    from torch import nn


def predict_step(
    model: nn.Module | ModelStep | str | Path,
    inputs: Any = None,
    *,
    device: str | Device = "H100",
    devices: int = 1,
    train: bool = True,
    optimizer: Any = "adam",
    loss: Any = None,
    precision: Precision = "fp32",
    database: OpDatabase | str | Path | None = None,
    learned: Sequence[DurationSource] = (),
    host: HostCost | None = None,
    link: Link | None = None,
    measured: MeasuredCollective | None = None,
    interference: Estimate | None = None,
    context_bytes: int | None = None,
) -> StepPrediction:
    """How long a step takes on a device, and how sure that is; nothing is run, and nothing allocated.

    Args:
        model: a module, also on torch's meta device; the path of an ONNX file; or a step that was captured.
        inputs: a tensor, a tuple of them, or a dictionary of keyword arguments; only shapes and types count.
            An ONNX file has its own; a dictionary sizes its named dimensions: {"batch": 8}.
        device: of the catalogue, or the path of a description: docs/devices.md.
        devices: 1 to 8 that train data-parallel, each with such inputs.
        train: forward, backward and optimizer; else a forward pass. A module stays in the mode it is in.
        optimizer: a name in torch.optim, a function of parameters that makes one, or None.
        loss: a function of the model's result; None takes its `loss`, else the sum of what it returns.
        precision: "fp32", "tf32", "bf16" or "fp16" (by autocast).
        database: of measured durations: one that is open, or its path.
        learned: estimators of durations, asked where nothing was measured.
        host: what launches cost, and whether the step is one CUDA graph.
        link, measured, interference: between devices, where they are better known.
        context_bytes: that a process takes of a GPU before any tensor, as measured; None takes 551 MiB.
    Raises:
        CaptureError: the model's operations do not follow from its shapes.
        OnnxShapesError: those of an ONNX file do not.
        DeviceError: no such device, or a rate of it is not known that is needed.
        StepPredictionError: a question that has no answer.
    """
    target = device if isinstance(device, Device) else find_device(device)
    step = captured(model, inputs, train=train, optimizer=optimizer, loss=loss, precision=precision)
    with ExitStack() as stack:
        rows = database
        if isinstance(rows, str | Path):
            rows = stack.enter_context(OpDatabase(rows, create=False))
        return predict_captured(
            step,
            target,
            devices=devices,
            precision=precision,
            ladder=DurationLadder(rows, learned=learned),
            host=host,
            link=link,
            measured=measured,
            interference=interference,
            context_bytes=context_bytes,
        )


def captured(
    model: nn.Module | ModelStep | str | Path,
    inputs: Any = None,
    *,
    train: bool = True,
    optimizer: Any = "adam",
    loss: Any = None,
    precision: Precision = "fp32",
    processor: bool = False,
) -> ModelStep:
    """The operations of a step of a module or an ONNX file; arguments and errors as of `predict_step`.

    Args:
        processor: a module as torch calls it on a processor, and not as on CUDA devices, with the memory that
            it takes there. An ONNX file has no such difference.
    """
    if isinstance(model, ModelStep):
        return model
    if isinstance(model, str | Path):
        from daceml.prediction.model_steps.onnx_step import read_onnx_step

        if loss is not None:
            raise StepPredictionError(
                "an ONNX file has no loss", why="its graph is what it is", fix="leave loss out"
            )
        sizes = dict(inputs) if isinstance(inputs, Mapping) else {}
        return read_onnx_step(Path(model), sizes, train=train, optimizer=optimizer, precision=precision)
    from daceml.prediction.capture.module import capture_step

    if inputs is None:
        raise StepPredictionError(
            "the inputs of the model are unknown",
            why="its operations follow from the shapes of its inputs",
            fix="give inputs: a tensor, a tuple of them, or a dictionary of keyword arguments",
        )
    args, kwargs = _call(inputs)
    return capture_step(
        model, args, kwargs,
        train=train, optimizer=optimizer, loss=loss, precision=precision, processor=processor,
    )  # fmt: skip


def _call(inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if isinstance(inputs, Mapping):
        return (), dict(inputs)
    if isinstance(inputs, tuple | list):
        return tuple(inputs), {}
    return (inputs,), {}
