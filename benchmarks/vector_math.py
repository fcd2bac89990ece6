"""Errors of the kernels' own float functions over all 2^32 arguments: python -m benchmarks.vector_math
--check.

The oracle is the same function of double, of the C library. An error counts in units in the last place that
the wanted value has as a float, of denormals too; a NaN in one alone and a wrong sign, of zeros too, is a
fault.
"""

from __future__ import annotations

import ctypes
import struct
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks import command
from benchmarks.bars import Bar

FUNCTIONS = ("exp", "expm1", "log", "log1p", "tanh", "erf", "sigmoid")
MOST_ULP = 4.0
_QUICK_STRIDE = 4099
_SOURCE = Path(__file__).with_suffix(".cpp")


@dataclass(frozen=True, kw_only=True)
class Errors:
    """What was seen of one function.

    Attributes:
        arguments: how many floats were tried.
        worst_ulp: the largest error, at the argument `at`.
        faults: NaN in one alone, or a wrong sign.
    """

    function: str
    arguments: int
    worst_ulp: float
    at: float
    faults: int


def compiled(folder: Path, flags: Sequence[str] = ()) -> ctypes.CDLL:
    """The comparisons as a library in `folder`, with the flags of generated kernels and these."""
    from daceml.toolchain.cxx import include_folder, toolchain

    tools, library = toolchain(), folder / "vector_math.so"
    arguments = [f"-I{include_folder()}", "-shared", str(_SOURCE), "-lmvec", "-lm", "-o", str(library)]
    subprocess.run([tools.cxx, *tools.flags, *flags, *arguments], check=True, stderr=subprocess.DEVNULL)
    return ctypes.CDLL(str(library))


def errors(library: ctypes.CDLL, function: str, stride: int) -> Errors:
    """Of every float whose bits are a multiple of `stride`."""
    worst, at, faults = ctypes.c_double(), ctypes.c_uint32(), ctypes.c_int64()
    library[f"compare_{function}"](
        ctypes.c_int64(stride), ctypes.byref(worst), ctypes.byref(at), ctypes.byref(faults)
    )
    (argument,) = struct.unpack("f", struct.pack("I", at.value))
    return Errors(
        function=function,
        arguments=-(-(2**32) // stride),
        worst_ulp=worst.value,
        at=argument,
        faults=faults.value,
    )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = command.parser(__doc__ or "")
    chosen = parser.parse_args(arguments)
    rows, bars = [], []
    with tempfile.TemporaryDirectory(prefix="daceml-vector-math-") as folder:
        library = compiled(Path(folder))
        for function in FUNCTIONS:
            seen = errors(library, function, _QUICK_STRIDE if chosen.quick else 1)
            print(
                f"{function:8s} {seen.worst_ulp:.3f} ulp at {seen.at.hex()}, {seen.faults} faults", flush=True
            )
            rows.append({**vars(seen), "at": seen.at.hex()})
            note = f"{seen.arguments} arguments, worst at {seen.at!r}"
            bars += [
                Bar(
                    name=f"{function}, largest error",
                    figure=seen.worst_ulp,
                    limit=MOST_ULP,
                    unit="ulp",
                    note=note,
                ),
                Bar(name=f"{function}, NaN or sign wrong", figure=seen.faults, limit=0),
            ]
    return command.finish("vector_math", chosen, rows, bars)


if __name__ == "__main__":
    sys.exit(main())
