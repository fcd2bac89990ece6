"""One graph of GraphNet as a module, with the values that its files describe.

A graph takes every tensor of its model as an argument, and its files say what each of them was like: shape,
element type, mean and deviation, the range of integers, or all values of a small one. Weights and buffers
become the module's own, so that they are trained and changed as in the model; the others are inputs.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from benchmarks.strangers.stranger import Stranger

# Values as GraphNet's loader draws them: a fifth of the recorded deviation, within ±100.
_NARROWED = 0.2
_LARGEST = 100.0
_DEVICE = re.compile(r"""device\(type="cuda"(, index=\d+)?\)|device\(["']cuda(:\d+)?["']\)""")
_IN_FLOAT64 = (
    (re.compile(r"torch\.(float32|float16|bfloat16|half|float)\b"), "torch.float64"),
    (re.compile(r"\.(float|half|bfloat16)\(\)"), ".double()"),
)


def captured_graph(folder: Path, name: str) -> Stranger:
    """A graph below `folder/samples`, to run next to eager PyTorch."""
    graph = folder / "samples" / name
    metas = _metas(graph)

    def make(*, precise: bool = False) -> nn.Module:
        return _module(graph, metas, precise=precise)

    def inputs(_: int) -> Mapping[str, Any]:
        given = _forward(_class(graph)).parameters
        return {
            place: _value(metas[place])
            for place, formal in given.items()
            if place in metas and not _is_held(place, formal)
        }

    return Stranger(
        name=name, make=make, inputs=inputs, batches=(1, 1), make_precise=lambda: make(precise=True)
    )


def _module(graph: Path, metas: Mapping[str, Mapping[str, Any]], *, precise: bool) -> nn.Module:
    kind = _class(graph, precise=precise)
    places = _forward(kind).parameters
    missing = [place for place in places if place not in metas]
    if missing:
        raise ValueError(f"its files say nothing of {', '.join(missing[:3])}")

    class Graph(kind):
        """The graph with weights and buffers of its own."""

        def __init__(self) -> None:
            super().__init__()
            for place, formal in places.items():
                if not _is_held(place, formal):
                    continue
                value = _value(metas[place])
                if _is_parameter(formal):
                    floats = value.is_floating_point()
                    self.register_parameter(place, nn.Parameter(value, requires_grad=floats))
                else:
                    self.register_buffer(place, value)

        def forward(self, **inputs: Any) -> Any:
            return super().forward(**inputs, **self._parameters, **self._buffers)

    return Graph()


def _is_held(place: str, formal: inspect.Parameter) -> bool:
    return _is_parameter(formal) or "_buffers_" in place


def _is_parameter(formal: inspect.Parameter) -> bool:
    return formal.annotation is nn.Parameter


def _forward(kind: Any) -> inspect.Signature:
    """The signature of a graph's forward without `self`."""
    signature = inspect.signature(kind.forward)
    return signature.replace(parameters=list(signature.parameters.values())[1:])


def _class(graph: Path, *, precise: bool = False) -> Any:
    """The class that the file defines, for the processor; in float64 where a precise one is wanted."""
    text = (graph / "model.py").read_text(encoding="utf-8")
    text = _DEVICE.sub('device(type="cpu")', text).replace('"cuda:0"', '"cpu"').replace('"cuda"', '"cpu"')
    for pattern, wide in _IN_FLOAT64 if precise else ():
        text = pattern.sub(wide, text)
    return _executed(text, graph / "model.py")["GraphModule"]


def _executed(text: str, file: Path) -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": "graphnet_graph"}
    exec(compile(text, str(file), "exec", dont_inherit=True), names)  # annotations tell what is a parameter
    return names


def _metas(graph: Path) -> dict[str, Mapping[str, Any]]:
    """What the files say of each tensor, by the name of the argument."""
    found: dict[str, Mapping[str, Any]] = {}
    for file in ("input_meta.py", "weight_meta.py"):
        names = _executed((graph / file).read_text(encoding="utf-8"), graph / file)
        for described in names.values():
            if isinstance(described, type) and hasattr(described, "shape"):
                found[described.name] = dict(vars(described))  # pyright: ignore[reportAttributeAccessIssue]
    return found


def _value(meta: Mapping[str, Any]) -> Any:
    """A tensor within what its description says, drawn from torch's generator."""
    dtype = getattr(torch, str(meta.get("dtype", "torch.float32")).removeprefix("torch."))
    shape, least, most = meta["shape"], meta.get("min_val"), meta.get("max_val")
    if meta.get("data") is not None:
        return torch.tensor(meta["data"], dtype=dtype).reshape(shape)
    if dtype is torch.bool:
        return torch.randn(shape) > 0.5
    if not dtype.is_floating_point and least is not None and most is not None:
        return torch.randint(least, most + 1, shape, dtype=dtype)
    mean = 0.0 if meta.get("mean") is None else meta["mean"]
    deviation = 0.1 if meta.get("std") is None else meta["std"]
    drawn = torch.randn(shape) * deviation * _NARROWED + mean if deviation else torch.full(shape, float(mean))
    value = drawn.to(dtype).clamp(least, most) if (least, most) != (None, None) else drawn.to(dtype)
    if dtype.is_floating_point:
        value = torch.where(value.isfinite(), value, torch.randn(shape).to(dtype) * 0.01)
        value = value.clamp(-_LARGEST, _LARGEST)
    return value
