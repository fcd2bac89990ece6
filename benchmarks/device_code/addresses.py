"""Which parameters of a kernel its loads and stores go to, as far as SASS shows where an address comes from.

Instructions are gone through once, in the order of the text. A register comes from those parameters that the
registers come from of which it is computed; a guarded instruction adds to what its target came from before.
So a register that two branches set is that of the later branch: good enough for arrays, which a kernel
chooses none of at run time.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from benchmarks.device_code.sass import Instruction

# Compute capability times 10, at least -> byte of constant bank 0 at which the parameters begin.
# Source: EIATTR_PARAM_CBANK of kernels that nvcc 13.0 makes (`cuobjdump -elf`).
_PARAMETERS = {80: 0x160, 90: 0x210, 100: 0x380}
_POINTER_BYTES, _WORD_BYTES = 8, 4

_REGISTER = re.compile(r"\b(U?R)(\d+)\b")
_CONSTANT = re.compile(r"\bc\[0x0\]\[(0x[0-9a-f]+)\]")
# of `desc[UR4][R14.64+0x10]`: the last brackets
_ADDRESS = re.compile(r"\[([^\[\]]*)\]")
_FROM_CONSTANTS = ("LDC", "ULDC", "LDCU")
_STORES = ("STG", "ST")
_GLOBAL = ("LDG", "LD", *_STORES)
_FROM_MEMORY = ("LDG", "LD", "LDL", "LDS", "ATOM", "ATOMG", "ATOMS")


@dataclass(frozen=True, kw_only=True)
class Access:
    """A load or store of global memory.

    Attributes:
        bits: of a thread.
        parameters: places in the list of parameters that the address comes from; none where that is not seen.
    """

    is_store: bool
    bits: int
    parameters: frozenset[int]


def accesses_of(instructions: Iterable[Instruction], architecture: int) -> Iterator[Access]:
    """Loads and stores of global memory.

    Args:
        instructions: of a kernel whose first parameters are pointers.
        architecture: 90 for compute capability 9.0.
    """
    begin = _PARAMETERS[max(one for one in _PARAMETERS if one <= architecture)]
    origins: dict[str, frozenset[int]] = {}
    for one in instructions:
        if one.opcode in _GLOBAL:
            *_, address = _ADDRESS.findall(one.operands)
            yield Access(
                is_store=one.opcode in _STORES,
                bits=one.bits,
                parameters=_joined(origins, address, begin),
            )
        for register, origin in _changes(one, origins, begin):
            origins[register] = origin | (origins.get(register, frozenset()) if one.guarded else frozenset())


def _changes(
    one: Instruction, origins: dict[str, frozenset[int]], begin: int
) -> list[tuple[str, frozenset[int]]]:
    """Registers that an instruction sets, and the parameters that they come from then."""
    target, _, sources = one.operands.partition(",")
    found = _REGISTER.fullmatch(target.strip().split(".")[0])
    if found is None:
        return []
    kind, first = found[1], int(found[2])
    words = max(one.bits // 32, 1)
    constant = _CONSTANT.search(sources)
    if one.opcode in _FROM_CONSTANTS and constant is not None:
        places = [int(constant[1], 16) + _WORD_BYTES * word for word in range(words)]
        return [(f"{kind}{first + n}", _parameter(place, begin)) for n, place in enumerate(places)]
    if one.opcode in _FROM_MEMORY:
        return [(f"{kind}{first + n}", frozenset[int]()) for n in range(words)]
    return [(f"{kind}{first}", _joined(origins, sources, begin))]


def _joined(origins: dict[str, frozenset[int]], operands: str, begin: int) -> frozenset[int]:
    """Parameters that any operand comes from."""
    found: frozenset[int] = frozenset()
    for kind, number in _REGISTER.findall(operands):
        found |= origins.get(kind + number, frozenset())
    for place in _CONSTANT.findall(operands):
        found |= _parameter(int(place, 16), begin)
    return found


def _parameter(place: int, begin: int) -> frozenset[int]:
    return frozenset([(place - begin) // _POINTER_BYTES]) if place >= begin else frozenset()
