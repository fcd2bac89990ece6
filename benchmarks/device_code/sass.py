"""SASS, a device's machine code, as `cuobjdump -sass` prints it: instructions of each kernel, and counts.

Source: CUDA Binary Utilities 13, "Instruction Set Reference", for the names of opcodes.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

# opcode -> what it does; with a width where it moves data
ACCESSES = {
    "LDG": "global_loads", "STG": "global_stores", "LD": "generic_loads", "ST": "generic_stores",
    "LDL": "local_loads", "STL": "local_stores", "LDS": "shared_loads", "STS": "shared_stores",
}  # fmt: skip
OPERATIONS = {
    "SHFL": "shuffles", "BAR": "barriers", "MUFU": "special_functions", "CALL": "calls",
    "RED": "atomics", "REDG": "atomics", "ATOM": "atomics", "ATOMG": "atomics", "ATOMS": "atomics",
}  # fmt: skip

_FUNCTION = re.compile(r"^\s*Function : (?P<name>\S+)$")
_INSTRUCTION = re.compile(
    r"^\s*/\*[0-9a-f]{4,}\*/\s+(?:@!?(?P<guard>U?P\w+)\s+)?(?P<opcode>[A-Z][\w.]*)\s*(?P<operands>[^;]*);"
)
# of one thread, in bits, by the part of an opcode that says so
_BITS = {"U8": 8, "S8": 8, "U16": 16, "S16": 16, "64": 64, "128": 128, "256": 256}
_WORD = 32


@dataclass(frozen=True, kw_only=True)
class Instruction:
    """One instruction.

    Attributes:
        opcode: "LDG" of `LDG.E.128.CONSTANT`; modifiers: the rest.
        operands: "R4, desc[UR4][R14.64]".
        guarded: whether a predicate may keep it from happening.
    """

    opcode: str
    modifiers: tuple[str, ...] = ()
    operands: str = ""
    guarded: bool = False

    @property
    def bits(self) -> int:
        """That a load or store moves for a thread."""
        return next((_BITS[one] for one in self.modifiers if one in _BITS), _WORD)


def functions_of(sass: str) -> dict[str, list[Instruction]]:
    """The instructions of each function of an object, by its mangled name, in the order of the text."""
    found: dict[str, list[Instruction]] = {}
    of: list[Instruction] = []
    for line in sass.splitlines():
        if (header := _FUNCTION.match(line)) is not None:
            of = found.setdefault(header["name"], [])
        elif (seen := _INSTRUCTION.match(line)) is not None:
            opcode, *modifiers = seen["opcode"].split(".")
            of.append(
                Instruction(
                    opcode=opcode,
                    modifiers=tuple(modifiers),
                    operands=seen["operands"].strip(),
                    guarded=seen["guard"] is not None,
                )
            )
    return found


def counts_of(instructions: Iterable[Instruction]) -> dict[str, int]:
    """How many instructions of each kind there are: `global_loads_128`, `shuffles`, `instructions`.

    An instruction in a loop counts once, and a copy that the compiler made of it once more.
    """
    counts: Counter[str] = Counter()
    for one in instructions:
        counts["instructions"] += 1
        if one.opcode in ACCESSES:
            counts[f"{ACCESSES[one.opcode]}_{one.bits}"] += 1
        elif one.opcode in OPERATIONS:
            counts[OPERATIONS[one.opcode]] += 1
    return dict(sorted(counts.items()))
