"""Every optimisation by the name that a question gives it, and questions from text."""

from __future__ import annotations

import dataclasses
import difflib
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any

from daceml.errors import MissingFactError, WhatIfError
from daceml.simulation.network.links import Link, link_of
from daceml.simulation.network.topology import Topology
from daceml.simulation.task import Phase
from daceml.simulation.whatif.activation_checkpointing import ActivationCheckpointing
from daceml.simulation.whatif.amp import AutomaticMixedPrecision
from daceml.simulation.whatif.blueconnect import BlueConnect
from daceml.simulation.whatif.compiled_region import CompiledRegion
from daceml.simulation.whatif.cuda_graphs import CudaGraphs
from daceml.simulation.whatif.data_loader import DataLoaderWorkers
from daceml.simulation.whatif.data_parallel import DataParallel
from daceml.simulation.whatif.deep_gradient_compression import DeepGradientCompression
from daceml.simulation.whatif.faster_device import FasterDevice
from daceml.simulation.whatif.fused_adam import FusedAdam
from daceml.simulation.whatif.gist import Gist
from daceml.simulation.whatif.gradient_accumulation import GradientAccumulation
from daceml.simulation.whatif.gradients import Gradients
from daceml.simulation.whatif.larger_batch import LargerBatch
from daceml.simulation.whatif.link import AnotherLink
from daceml.simulation.whatif.low_precision import LowPrecision
from daceml.simulation.whatif.metaflow import MetaFlow
from daceml.simulation.whatif.optimization import Estimate, Optimization
from daceml.simulation.whatif.p3 import PriorityPropagation
from daceml.simulation.whatif.parameter_server import ParameterServer
from daceml.simulation.whatif.restructured_batch_norm import RestructuredBatchNorm
from daceml.simulation.whatif.vdnn import VirtualizedDnn

# What one device does.
LOCAL: tuple[type[Optimization], ...] = (
    AutomaticMixedPrecision,
    FusedAdam,
    CudaGraphs,
    CompiledRegion,
    LowPrecision,
    ActivationCheckpointing,
    DataLoaderWorkers,
    GradientAccumulation,
    LargerBatch,
    FasterDevice,
    RestructuredBatchNorm,
    MetaFlow,
    VirtualizedDnn,
    Gist,
)
# What devices tell each other.
COMMUNICATION: tuple[type[Optimization], ...] = (
    DataParallel,
    BlueConnect,
    DeepGradientCompression,
    ParameterServer,
    PriorityPropagation,
    AnotherLink,
)

# What other commands answer, and what another name does here.
ELSEWHERE: dict[str, str] = {
    "bf16": "ask --amp dtype=bf16, or --low-precision bf16 for everything in it",
    "fp16": "ask --amp dtype=fp16",
    "fp8": "ask --low-precision fp8",
    "to": "ask daceml trace predict TRACE --to DEVICE, which retimes the kernels for another device",
    "precision": "ask --amp dtype=bf16 here, or daceml trace predict TRACE --to DEVICE --precision bf16",
}

OPTIMIZATIONS: dict[str, type[Optimization]] = {kind.option: kind for kind in (*LOCAL, *COMMUNICATION)}


def parse(
    option: str, figures: Mapping[str, str] | None = None, *, given: Mapping[str, object] | None = None
) -> Optimization:
    """An optimisation from text, as a command line gives it.

    Args:
        option: its name, such as "amp".
        figures: field -> its value: "3" or, likely, at best and at worst, "3:4:2" of an estimate; "a,b" of
            several texts; "layer1=2,layer2=0.5" of figures by name.
        given: fields that no text can say, as they are.
    Raises:
        WhatIfError: there is no such optimisation or field, a value cannot be read, or one is missing.
    """
    if option not in OPTIMIZATIONS:
        if option in ELSEWHERE:
            raise WhatIfError(f"there is no optimisation {option!r}", fix=ELSEWHERE[option])
        near = difflib.get_close_matches(option, OPTIMIZATIONS, n=3) or sorted(OPTIMIZATIONS)
        raise WhatIfError(f"there is no optimisation {option!r}", fix=f"give one of {', '.join(near)}")
    kind = OPTIMIZATIONS[option]
    types_of = typing.get_type_hints(kind)
    fields = {field.name: field for field in dataclasses.fields(kind)}
    values: dict[str, Any] = dict(given or {})
    for word, text in (figures or {}).items():
        name = word.replace("-", "_")
        if name not in fields or name in values:
            known = ", ".join(fields) or "none"
            unsure = ", ".join(one for one in fields if types_of[one] is Estimate)
            ranges = f"; LIKELY:BEST:WORST is possible for {unsure}" if unsure else ""
            raise WhatIfError(f"{option} has no figure {word!r}", fix=f"its figures are: {known}{ranges}")
        values[name] = _read(option, name, text, types_of[name])
    missing = [
        name
        for name, field in fields.items()
        if name not in values
        and field.default is dataclasses.MISSING
        and field.default_factory is dataclasses.MISSING
    ]
    if missing:
        raise MissingFactError(f"{option} needs {', '.join(missing)}", fix=f"give {missing[0]}=VALUE with it")
    return kind(**values)


def _read(option: str, name: str, text: str, kind: Any) -> Any:
    try:
        return _value(text.strip(), kind)
    except (ValueError, KeyError, WhatIfError) as error:
        why = error.what if isinstance(error, WhatIfError) else f"it is read as {_described(kind)}"
        raise WhatIfError(
            f"{option}: {name} cannot be {text!r}", why=why, fix=f"give {_described(kind)}"
        ) from error


def _value(text: str, kind: Any) -> Any:
    """Text as a value of a type that fields have."""
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin in (types.UnionType, typing.Union):
        return None if text.lower() == "none" else _value(text, next(a for a in inner if a is not type(None)))
    if origin is typing.Literal:
        if text not in inner:
            raise ValueError(text)
        return text
    if origin is tuple:
        return tuple(_value(part.strip(), inner[0]) for part in text.split(",") if part.strip())
    if origin is Mapping:  # of names to figures
        pairs = (part.rsplit("=", 1) for part in text.split(",") if part.strip())
        return {name.strip(): float(number) for name, number in pairs}
    if kind not in _READERS:
        raise WhatIfError(f"{kind.__name__} is made in Python, not of text")
    return _READERS[kind](text)


def _estimate(text: str) -> Estimate:
    figures = [float(part) for part in text.split(":")]
    if len(figures) == 1:
        return Estimate.known(figures[0])
    likely, fast, slow = figures
    return Estimate(likely, fast=fast, slow=slow)


def _topology(text: str) -> Topology:
    devices, link, *inside = text.split()
    if len(inside) > 1:
        raise ValueError(text)
    return Topology.of(devices, link, inside=inside[0] if inside else None)


_TRUTH = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
_READERS: dict[Any, Callable[[str], Any]] = {
    Estimate: _estimate,
    float: float,
    int: int,
    str: str,
    bool: lambda text: _TRUTH[text.lower()],
    Phase: lambda text: Phase[text.upper()],
    Link: link_of,
    Topology: _topology,
    Gradients: Gradients.of,
}
_DESCRIPTIONS: dict[Any, str] = {
    Estimate: "a number, or LIKELY:BEST:WORST",
    float: "a number",
    int: "a whole number",
    str: "a text",
    bool: "true or false",
    Phase: "/".join(phase.name.lower() for phase in Phase),
    Link: 'a link, such as "NVLink3" or "100Gbps"',
    Topology: 'devices and their link, "8 NVLink3", or "4x8 100Gbps NVLink3" for 4 nodes with 8 each',
    Gradients: 'the bytes of all gradients, such as "100MB"',
}


def _described(kind: Any) -> str:
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin in (types.UnionType, typing.Union):
        return f"{_described(next(a for a in inner if a is not type(None)))}, or none"
    if origin is typing.Literal:
        return " or ".join(inner)
    if origin is tuple:
        return f"{_described(inner[0])}, or several with commas between them"
    return _DESCRIPTIONS.get(kind, "NAME=NUMBER, or several with commas between them")
