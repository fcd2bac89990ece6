"""A row for each kernel and architecture: what results keep, and what bars are read from."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.device_code.addresses import accesses_of
from benchmarks.device_code.cases import NETWORKS_FOR, Case
from benchmarks.device_code.compiled import CompiledKernel, compiled
from benchmarks.device_code.generated import generated
from benchmarks.device_code.sass import counts_of
from benchmarks.device_code.vector_promises import broken, promises_of
from daceml.devices.occupancy import LIMITS, occupancy
from daceml.sdfg.sizes import Size, product

if TYPE_CHECKING:
    from benchmarks.device_code.disassembler import Disassembler
    from daceml.codegen_cuda.toolchain import CudaToolchain


def rows_of(case: Case, tools: CudaToolchain, disassembler: Disassembler | str) -> list[dict[str, Any]]:
    """A row for each kernel and architecture.

    Args:
        disassembler: or why there is none.
    """
    start = time.monotonic()
    kernels, launches = generated(case.spec, architecture=NETWORKS_FOR[0], train_mode=case.train_mode)
    generated_s = time.monotonic() - start
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="daceml-device-code-") as folder:
        for architecture in case.architectures:
            aimed = replace(tools, architecture=architecture)
            rows += [
                row(case, one, architecture) for one in compiled(kernels, aimed, Path(folder), disassembler)
            ]
    share_s = round(generated_s / max(len(kernels), 1), 3)
    return [one | {"generated_s": share_s, "launches": asdict(launches[one["part"]])} for one in rows]


def row(case: Case, one: CompiledKernel, architecture: int) -> dict[str, Any]:
    """What is known of a kernel: `failure` alone where the compiler refused it."""
    launched = one.kernel.unit.launched
    known: dict[str, Any] = {
        "case": case.name, "part": one.kernel.part, "architecture": architecture, "kernel": launched.function,
        "grid": list(map(str, launched.grid)), "block": list(map(str, launched.block)),
        "blocks": _number(launched.grid), "bytes_moved": _number([one.kernel.bytes_moved]),
        "seconds": round(one.seconds, 3),
    }  # fmt: skip
    if isinstance(one.facts, str):
        return known | {"failure": one.facts}
    known |= asdict(one.facts)
    threads = _number(launched.block)
    if architecture in LIMITS and threads is not None:
        shared = one.facts.shared_bytes + launched.shared_bytes
        held = occupancy(architecture, threads=threads, registers=one.facts.registers, shared_bytes=shared)
        known["occupancy"] = held.share
    return known | _code(one, architecture)


def _code(one: CompiledKernel, architecture: int) -> dict[str, Any]:
    """What the machine code says, next to what the text promises of it."""
    unit = one.kernel.unit
    promises = promises_of(unit.text)
    known: dict[str, Any] = {"vectors": list(map(str, promises))}
    if isinstance(one.code, str):
        return known | {"unread": one.code}
    accesses = list(accesses_of(one.code, architecture))
    missing = broken(promises, accesses, unit.parameters)
    return known | {"broken_vectors": list(map(str, missing)), "sass": counts_of(one.code)}


def _number(sizes: Sequence[Size]) -> int | None:
    """Their product; None where it depends on symbols."""
    found = product(sizes)
    return found if isinstance(found, int) else None
