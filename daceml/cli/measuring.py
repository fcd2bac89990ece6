"""Which devices `daceml doctor --measure` measures, and with what."""

from __future__ import annotations

from collections.abc import Iterator

from daceml.cli.checks import examine
from daceml.cli.finding import Finding, Status
from daceml.devices.measured import MeasuredDevice

_INSTALL = "pip install 'daceml[gpu]' for CUDA 13, 'daceml[gpu-cuda12]' for CUDA 12"


def measured_devices() -> Iterator[MeasuredDevice | Finding]:
    """Every device of this machine, or the line that says why one could not be measured."""
    import torch

    yield _measured(None)
    if torch.cuda.is_available():
        yield from map(_measured, range(torch.cuda.device_count()))


def _measured(index: int | None) -> MeasuredDevice | Finding:
    found: list[MeasuredDevice] = []

    def check() -> tuple[Status, str, str]:
        try:
            found.append(_processor() if index is None else _cuda(index))
        except ImportError as error:
            return "warn", f"not measured: {error}", _INSTALL
        return "ok", found[0].name, ""

    finding = examine("processor" if index is None else f"cuda:{index}", check)
    return found[0] if found else finding


def _processor() -> MeasuredDevice:
    from daceml.operations.measuring.processor import measure_processor

    return measure_processor()


def _cuda(index: int) -> MeasuredDevice:
    from importlib import import_module

    from daceml.operations.measuring.cuda_device import measure_cuda

    return measure_cuda(import_module("cupy"), index)
