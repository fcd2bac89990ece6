"""What kernels of compiled programs are made of, by the names under which profilers show them.

The function of a generated kernel is one of `daceml::kernel`, and its name ends with a hash of what it
computes: equal loops of several layers are one function. Which step a launch was is known by its place among
those of its call.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from pathlib import Path
from typing import Any, TypeGuard, cast

from daceml.errors import TraceFileError
from daceml.profiling.kineto.numerals import is_number
from daceml.profiling.trace import Trace

HEADER, PROGRAMS = "daceml", "programs"
# operators that run a compiled program, and what the recorder puts before the names of its steps within them
CALLS = ("daceml::call", "daceml::call_held", "daceml::call_into")
PREFIX = "daceml.kernel: "
_DEMANGLED = re.compile(r"\bdaceml::kernel::(\w+)")
_MANGLED = re.compile(r"^_ZN6daceml6kernel(\d+)(\w+)$")


@dataclass(frozen=True, kw_only=True)
class KernelOrigin:
    """A step of a program that launches a kernel.

    Attributes:
        function: of the kernel.
        layers: module paths of what it computes; "" is the outermost module.
        nodes: names of the ONNX nodes.
        flops, bytes_moved: of one launch, at the sizes with which it was compiled; each byte counts once.
            None where the recorder did not say.
    """

    function: str
    layers: tuple[str, ...]
    nodes: tuple[str, ...]
    flops: float | None = None
    bytes_moved: float | None = None


@dataclass(frozen=True, kw_only=True)
class KernelProgram:
    """The kernels that a call of a program launches, in order; and its number in the recorded process."""

    number: int | None
    kernels: tuple[KernelOrigin, ...]


def function_of(name: str) -> str | None:
    """The function of a generated kernel, of its demangled or mangled name; None of any other kernel's."""
    if (found := _DEMANGLED.search(name)) is not None:
        return found[1]
    if (found := _MANGLED.match(name)) is not None:
        return found[2][: int(found[1])]
    return None


def step_costs(trace: Trace) -> dict[tuple[int, int], tuple[float, float]]:
    """Number of a program and of its step -> flops and bytes, for whatever runs the step."""
    ours = trace.header.get(HEADER)
    records = ours.get(PROGRAMS, []) if _is_object(ours) else []
    found: dict[tuple[int, int], tuple[float, float]] = {}
    for record in cast("list[Any]", records) if isinstance(records, list) else []:
        steps = record.get("steps") if _is_object(record) else None
        for place, step in enumerate(cast("list[Any]", steps) if isinstance(steps, list) else []):
            known = (
                (_amount(step.get("flops")), _amount(step.get("bytes"))) if _is_object(step) else (None, None)
            )
            if type(record.get("number")) is int and known[0] is not None and known[1] is not None:
                found[record["number"], place] = (known[0], known[1])
    return found


def kernel_costs(trace: Trace) -> dict[str, tuple[float, float]]:
    """Function of a generated kernel -> flops and bytes of a launch, where all programs of a trace agree."""
    found: dict[str, set[tuple[float | None, float | None]]] = {}
    for program in programs_of(trace):
        for kernel in program.kernels:
            found.setdefault(kernel.function, set()).add((kernel.flops, kernel.bytes_moved))
    known: dict[str, tuple[float, float]] = {}
    for function, costs in found.items():
        flops, moved = next(iter(costs))
        if len(costs) == 1 and flops is not None and moved is not None:
            known[function] = (flops, moved)
    return known


def common_layer(layers: Iterable[str]) -> str:
    """The innermost module that holds all of these; "" is the outermost one."""
    paths = [layer.split(".") if layer else [] for layer in layers]
    if not paths:
        return ""
    shared = takewhile(lambda parts: len(set(parts)) == 1, zip(*paths, strict=False))
    return ".".join(parts[0] for parts in shared)


def programs_of(trace: Trace) -> tuple[KernelProgram, ...]:
    """Programs with kernels for a device that a trace says were called; what is no record is left out."""
    ours = trace.header.get(HEADER)
    records = ours.get(PROGRAMS, []) if _is_object(ours) else []
    return tuple(
        program
        for record in (cast("list[Any]", records) if isinstance(records, list) else [])
        if _is_object(record) and (program := _program(record)).kernels
    )


def with_programs(trace: Trace, folders: Sequence[Path]) -> Trace:
    """A trace that another recorder wrote, with what stored programs say of their kernels.

    Args:
        folders: of the programs that the run called, as they lie in the cache.
    Raises:
        TraceFileError: there is no program in a folder.
    """
    ours = trace.header.get(HEADER)
    known: Mapping[str, Any] = ours if _is_object(ours) else {}
    records = [*known.get(PROGRAMS, []), *map(stored_program, folders)]
    return replace(trace, header={**trace.header, HEADER: {**known, PROGRAMS: records}})


def stored_program(folder: Path) -> dict[str, Any]:
    """What the manifest of a program says of its kernels, as plain values.

    Raises:
        TraceFileError: there is no manifest that can be read.
    """
    file = folder / "manifest.json"
    try:
        steps: list[dict[str, Any]] = json.loads(file.read_text(encoding="utf-8"))["steps"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise TraceFileError(
            "this is no compiled program",
            where=str(file),
            why=f"{type(error).__name__}: {error}",
            fix="name a folder of programs/ in daceml's cache (`daceml cache` says where that is)",
        ) from error
    return {"number": None, "steps": [_stored_step(step) for step in steps]}


def _stored_step(step: Mapping[str, Any]) -> dict[str, Any]:
    nodes: list[dict[str, str]] = step.get("nodes") or []
    launch: dict[str, Any] = step.get("launch") or {}
    inner = [node["module_path"] for node in nodes] or [p for p in step["module_path"].split(", ") if p]
    return {
        "function": launch.get("function"),
        "layers": list(dict.fromkeys(inner)),
        "nodes": [{"name": node["onnx_name"]} for node in nodes],
        "flops": step.get("flops"),
        "bytes": step.get("unique_bytes"),
    }


def _program(record: Mapping[str, Any]) -> KernelProgram:
    steps: Any = record.get("steps")
    number = record.get("number")
    return KernelProgram(
        number=number if type(number) is int else None,
        kernels=tuple(
            KernelOrigin(
                function=step["function"],
                layers=tuple(_strings(step.get("layers"))),
                nodes=tuple(_strings([n.get("name") for n in step.get("nodes", []) if _is_object(n)])),
                flops=_amount(step.get("flops")),
                bytes_moved=_amount(step.get("bytes")),
            )
            for step in (cast("list[Any]", steps) if isinstance(steps, list) else [])
            if _is_object(step) and isinstance(step.get("function"), str)
        ),
    )


def _amount(value: Any) -> float | None:
    return float(value) if is_number(value) and value >= 0 else None


def _strings(values: Any) -> list[str]:
    return (
        [one for one in cast("list[Any]", values) if isinstance(one, str)] if isinstance(values, list) else []
    )


def _is_object(value: Any) -> TypeGuard[Mapping[str, Any]]:
    return isinstance(value, dict)
