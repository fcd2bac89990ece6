"""Device code through a C++ compiler: objects, and what belongs to all of them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from daceml.toolchain.compiler_process import run_compiler

FOLDER = Path(__file__).parent
SOURCES = tuple(FOLDER / name for name in ("threads.cpp", "arrays.cpp"))
INCLUDE = FOLDER.parent / "include"

_HEADER = "daceml_device.h"
# A product rounds before it is added to something, as in eager PyTorch. -O1 compiles in half the time of -O2.
_FLAGS = ("-std=c++20", "-O1", "-fPIC", "-ffp-contract=off", "-w")


@lru_cache(maxsize=1)
def fingerprint() -> str:
    """Hash of everything but the text and the compiler that decides what an object is."""
    sha = hashlib.sha256(" ".join(_FLAGS).encode())
    for file in sorted([*INCLUDE.rglob("*.h"), *FOLDER.glob("*.cpp"), *FOLDER.glob("*.h")]):
        sha.update(file.name.encode())
        sha.update(file.read_bytes())
    return sha.hexdigest()


def compile_header(text: str, folder: Path, *, cxx: str, includes: Sequence[Path]) -> None:
    """Write a header with which kernels begin, and its precompiled form.

    Raises:
        BuildError: the compiler refused it.
    """
    (folder / _HEADER).write_text(text)
    named = [f"-I{one}" for one in includes]
    precompiled = ["-x", "c++-header", str(folder / _HEADER), "-o", str(folder / f"{_HEADER}.gch")]
    _run([cxx, *_FLAGS, f"-I{INCLUDE}", *named, *precompiled])


def compile_kernel(
    text: str, folder: Path, *, cxx: str, includes: Sequence[Path], header: Path | None = None
) -> Path:
    """Write `kernel.cpp` and `kernel.o`; gives the object.

    Args:
        includes: folders of further headers.
        header: the folder of the precompiled header, of `compile_header`.
    Raises:
        BuildError: the compiler refused the text.
    """
    source = folder / "kernel.cpp"
    source.write_text(text)
    precompiled = [] if header is None else ["-include", str(header / _HEADER)]
    return _compile(source, folder, cxx, [*precompiled, *(f"-I{one}" for one in includes)])


def compile_scheduler(folder: Path, *, cxx: str, includes: Sequence[Path]) -> list[Path]:
    """What runs the threads: objects that are linked once to whatever emulated kernels there are.

    Raises:
        BuildError: the compiler refused them.
    """
    options = ["-O2", *(f"-I{one}" for one in includes)]
    return [_compile(source, folder, cxx, options) for source in SOURCES]


def link(objects: Sequence[Path], library: Path, *, cxx: str) -> None:
    """A shared library of objects.

    Raises:
        BuildError: something is missing in them.
    """
    _run([cxx, "-shared", *map(str, objects), "-o", str(library)])


def _compile(source: Path, folder: Path, cxx: str, options: Sequence[str]) -> Path:
    target = folder / f"{source.stem}.o"
    _run([cxx, *_FLAGS, f"-I{INCLUDE}", *options, "-c", str(source), "-o", str(target)])
    return target


def _run(command: Sequence[str]) -> None:
    made = Path(command[-1])
    run_compiler(command, made.parent, name="the C++ compiler", where=made)
