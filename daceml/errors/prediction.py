"""Errors of devices, estimates and predictions."""

from __future__ import annotations

from daceml.errors.base import DacemlError


class DeviceError(DacemlError):
    """A device that nobody knows, or a record of one that is wrong or says too little for a question."""

    code = "DML641"


class ScalingError(DeviceError):
    """A kernel whose time on another device does not follow from its time on this one."""


class EstimationError(DacemlError):
    """An operation whose time does not follow from what was measured."""

    code = "DML642"


class PredictionError(DacemlError):
    """A run or model cannot be predicted for another device."""

    code = "DML651"


class OriginDeviceError(PredictionError):
    """It is not known on which device a run was recorded."""

    code = "DML652"


class PriceError(PredictionError):
    """A price that says too little, or of a device that nobody asked about."""

    code = "DML653"


class TrackingError(PredictionError):
    """No step was tracked, or more is being tracked than one thing."""

    code = "DML654"


class CaptureError(DacemlError):
    """A model whose operations do not follow from its shapes, or an optimizer that nobody knows."""

    code = "DML655"


class StepPredictionError(DacemlError):
    """A question about a step that has no answer: another number of devices, a price without a date."""

    code = "DML656"


class OnnxShapesError(DacemlError):
    """An ONNX file whose shapes are not known, so that neither is what its nodes do."""

    code = "DML657"
