"""torch's exporter without its warnings and log lines."""

from __future__ import annotations

import contextlib
import logging
import warnings
from collections.abc import Generator

_LOUD = (
    "torch",
    "torch.export",
    "torch.fx",
    "torch._dynamo",
    "torch.onnx",
    "onnxscript",
    "onnx_ir",
    "onnx_ir.passes",
)


@contextlib.contextmanager
def quiet() -> Generator[None]:
    """No warnings and no log lines of the exporter below errors; everything is put back."""
    loggers = [logging.getLogger(name) for name in _LOUD]
    levels = [logger.level for logger in loggers]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for logger in loggers:
            logger.setLevel(logging.CRITICAL)
        try:
            yield
        finally:
            for logger, level in zip(loggers, levels, strict=True):
                logger.setLevel(level)
