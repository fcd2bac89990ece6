"""What the assembler says of kernels, and the file that keeps it beside their object."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from daceml.runtime.records.kernel_facts import KernelFacts

_ENTRY = re.compile(r"Compiling entry function '(\w+)'")
_FRAME = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_REGISTERS, _SHARED = re.compile(r"Used (\d+) registers"), re.compile(r"(\d+) bytes smem")


@dataclass(frozen=True, kw_only=True)
class CompiledFacts:
    """What is known of the kernels of an object.

    Attributes:
        architecture: 90 for compute capability 9.0.
        kernels: by mangled name.
        threads: of a block of the one kernel, if that was chosen for it (`block_size.py`).
        min_blocks: what nvcc was told of it, see `block_size.BlockShape`.
    """

    architecture: int
    kernels: Mapping[str, KernelFacts]
    threads: int | None = None
    min_blocks: int = 0

    def of(self, function: str) -> KernelFacts | None:
        """Those of a generated kernel; None where the object has none of that name."""
        begin = mangled(function)
        return next((facts for name, facts in self.kernels.items() if name.startswith(begin)), None)


def mangled(function: str) -> str:
    """How the name of a generated kernel begins: `_ZN6daceml6kernel4rowsE`; its parameters follow.

    Source: Itanium C++ ABI, 5.1.2 and 5.1.3.
    """
    return f"_ZN6daceml6kernel{len(function)}{function}E"


def kernel_facts(said: str) -> dict[str, KernelFacts]:
    """What `ptxas -v` printed, by the mangled name of each kernel.

    It names a kernel, then its stack and spills in one line, and its registers and shared memory in another.
    """
    facts: dict[str, dict[str, int]] = {}
    of: dict[str, int] = {}
    for line in said.splitlines():
        if (entry := _ENTRY.search(line)) is not None:
            of = facts.setdefault(entry[1], {})
        elif "Function properties for" in line:
            # also of functions that a kernel calls, which are not kernels
            name = line.rsplit(" ", 1)[-1]
            of = facts.get(name, {})
        elif (frame := _FRAME.search(line)) is not None:
            of["stack_bytes"] = int(frame[1])
            of["spill_bytes"] = int(frame[2]) + int(frame[3])
        elif (used := _REGISTERS.search(line)) is not None:
            of["registers"] = int(used[1])
            shared = _SHARED.search(line)
            of["shared_bytes"] = int(shared[1]) if shared is not None else 0
    return {name: KernelFacts(**known) for name, known in facts.items() if "registers" in known}


def save_facts(facts: CompiledFacts, object_file: Path) -> None:
    """Write what is known of an object beside it."""
    _facts_file(object_file).write_text(json.dumps(asdict(facts), indent=1))


def load_facts(object_file: Path) -> CompiledFacts | None:
    """What was written beside an object; None of one that no CUDA compiler made."""
    file = _facts_file(object_file)
    if not file.is_file():
        return None
    record = json.loads(file.read_text())
    kernels = {name: KernelFacts(**known) for name, known in record["kernels"].items()}
    return CompiledFacts(**(record | {"kernels": kernels}))


def _facts_file(object_file: Path) -> Path:
    return object_file.with_suffix(".facts.json")
