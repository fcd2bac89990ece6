"""ATen to ONNX: a flat table from overload names to functions that emit ONNX nodes.

A translation takes the arguments of its ATen overload (tensors and symbolic sizes are `onnx_ir.Value`,
dtypes `onnx_ir.DataType`, all else is Python) and returns as many fresh values as the overload does:
never one of its inputs, because the exporter renames what it is given. It emits through
`onnxscript.opset23`, which records into the graph under construction. One that cannot take its arguments
raises `UntranslatableError` with the reason; torch's own table is tried next.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Callable
from typing import Any

Translation = Callable[..., Any]

_entries: dict[str, Translation] = {}


class UntranslatableError(Exception):
    """A translation that cannot take these arguments; the message is the reason."""


class UnsupportedError(UntranslatableError):
    """One that torch's own table would take, and get wrong: it is not asked."""


def translates(*overloads: str) -> Callable[[Translation], Translation]:
    """Enter a translation for overloads such as `"aten.conv2d.default"`."""

    def enter(function: Translation) -> Translation:
        for overload in overloads:
            if overload in _entries:
                raise ValueError(f"{overload} has two translations")
            _entries[overload] = function
        return function

    return enter


@functools.cache
def table() -> dict[str, Translation]:
    """Every translation, by the text of its overload (`str(torch.ops.aten.conv2d.default)`)."""
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")
    return _entries
