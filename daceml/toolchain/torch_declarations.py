"""torch's stable C functions as one small header, made from torch's own.

A driver is compiled for every program, and calls a few C functions of torch. Its headers declare them behind
50,000 lines of C++ types; the declarations alone take a fifteenth of the time to compile. They are taken
from the installed torch, so they are those of the library that is linked.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

TORCH_HEADERS = (
    "torch/csrc/inductor/aoti_torch/c/shim.h",
    "torch/csrc/inductor/aoti_torch/generated/c_shim_cpu.h",
    "torch/csrc/inductor/aoti_torch/generated/c_shim_cuda.h",
    "torch/csrc/stable/c/shim.h",
)

_TYPES = re.compile(
    r"^\s*(using \w+ = (?:\w+Opaque\s*\*|u?int\d+_t);|(?:struct|class) \w+Opaque;)", re.MULTILINE
)
_FUNCTIONS = re.compile(
    r'__attribute__\(\(__visibility__\("default"\)\)\)\s*((?:const )?\w+[\s*]+\w+\([^{};]*\);)'
)
_ON_CUDA = "aoti_torch_cuda_"
_KNOWN = frozenset(
    ["const", "void", "bool", "char", "float", "double", "int", "unsigned", "long", "size_t"]
) | {f"{sign}int{bits}_t" for sign in ("", "u") for bits in (8, 16, 32, 64)}


@dataclass(frozen=True, kw_only=True)
class Declarations:
    """Two headers.

    Attributes:
        common: types, functions of every torch, and those of operators on the CPU.
        cuda: functions of operators on CUDA devices; it needs the other one.
    """

    common: str
    cuda: str


def declarations(preprocessed: str) -> Declarations:
    """The functions of `TORCH_HEADERS` whose types are C's own or opaque.

    Args:
        preprocessed: those headers after the preprocessor, without line marks.
    """
    types = list(dict.fromkeys(_TYPES.findall(preprocessed)))
    names = {word for text in types for word in re.findall(r"\w+", text)}
    opaque = [f"struct {name};" for name in sorted(names) if name.endswith("Opaque")]
    named = [text for text in types if text.startswith("using")]
    functions = [
        " ".join(text.split())
        for text in _FUNCTIONS.findall(preprocessed)
        if _types_of(text) <= _KNOWN | names
    ]
    cuda = [text for text in functions if _ON_CUDA in text]
    others = [text for text in functions if _ON_CUDA not in text]
    return Declarations(common=_header([*opaque, *named], others), cuda=_header([], cuda))


def _header(types: list[str], functions: list[str]) -> str:
    body = "\n".join([*types, 'extern "C" {', *dict.fromkeys(functions), "}"])
    head = "#pragma once\n// Made by daceml of torch's headers.\n#include <stddef.h>\n#include <stdint.h>\n"
    return f"{head}{body}\n"


def _types_of(function: str) -> set[str]:
    """The words of a declaration that are types: all but the function's name and those of its parameters."""
    result, _, rest = function.partition("(")
    words = set(re.findall(r"\w+", result)[:-1])
    for parameter in rest.split(","):
        found = re.findall(r"\w+|\(", parameter)
        words |= set(found if len(found) == 1 else found[:-1])
    return words
