"""Run single kernels in emulation, on arrays between closed pages."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from enum import IntEnum
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from daceml.codegen_cuda.emulation.compiler import compile_kernel, link
from daceml.errors import ExecutionError

_DECLARATIONS = """\
extern "C" {
void* daceml_make_array(const char* name, std::size_t bytes, int edge) {
    return daceml::emulation::make_array(name, bytes, daceml::emulation::Edge(edge));
}
void daceml_free_arrays() { daceml::emulation::free_arrays(); }
int daceml_check_arrays() { return daceml::emulation::check_arrays(); }
void daceml_set_order(int order, std::uint64_t seed) {
    daceml::emulation::set_order(daceml::emulation::Order(order), seed);
}
const char* daceml_error() { return daceml::emulation::error(); }
std::uint64_t daceml_atomics() { return daceml::emulation::atomics(); }
}
"""


class Order(IntEnum):
    """In which order the threads of a block, and the blocks, go on; the result of a right kernel has none."""

    ASCENDING = 0
    DESCENDING = 1
    RANDOM = 2


class Edge(IntEnum):
    """Which end of every array touches a closed page."""

    END = 0
    BEGIN = 1


def compile_unit(
    source: str, folder: Path, *, cxx: str, scheduler: Sequence[Path], includes: Sequence[Path] = ()
) -> EmulatedUnit:
    """Device code as a library.

    Args:
        source: `#include <daceml/device.h>`, kernels, and for each launch a function
            `extern "C" int NAME(void* stream, …)`.
        folder: where it is written.
        scheduler: of `compile_scheduler`.
        includes: folders of further headers.
    Raises:
        BuildError: the compiler refused it.
    """
    text = f"{source}\n#include <daceml/emulation/arrays.h>\n{_DECLARATIONS}"
    compiled = compile_kernel(text, folder, cxx=cxx, includes=includes)
    library = folder / "unit.so"
    link([compiled, *scheduler], library, cxx=cxx)
    return EmulatedUnit(library)


class EmulatedUnit:
    """Launches of a compiled unit."""

    def __init__(self, library: Path) -> None:
        self._library = ctypes.CDLL(str(library))
        self._library.daceml_make_array.restype = ctypes.c_void_p
        self._library.daceml_error.restype = ctypes.c_char_p
        self._library.daceml_atomics.restype = ctypes.c_uint64

    def run(
        self,
        name: str,
        *arguments: NDArray[np.generic] | int,
        order: Order = Order.ASCENDING,
        seed: int = 0,
        edge: Edge = Edge.END,
    ) -> list[NDArray[np.generic]]:
        """The arrays after a launch, in the order of the arguments; those that were given stay as they are.

        Args:
            name: of the launch.
            arguments: contiguous arrays and sizes, as the launch takes them behind the stream.
            order, seed: of threads and blocks.
            edge: of the arrays.
        Raises:
            ExecutionError: a thread did what a device does not define; the message says which one, and what.
        """
        library = self._library
        launch: Callable[..., int] = getattr(library, name)
        library.daceml_set_order(int(order), ctypes.c_uint64(seed))
        try:
            values, copies = self._copied(arguments, edge)
            if launch(ctypes.c_void_p(), *values) != 0 or library.daceml_check_arrays() != 0:
                raise ExecutionError(f"{name} does what a device does not define", why=self._error())
            return [_read(address, array) for address, array in copies]
        finally:
            library.daceml_free_arrays()

    @property
    def atomics(self) -> int:
        """Atomic operations that all threads of the last launch have done."""
        return self._library.daceml_atomics()

    def _copied(
        self, arguments: Sequence[NDArray[np.generic] | int], edge: Edge
    ) -> tuple[list[object], list[tuple[int, NDArray[np.generic]]]]:
        values: list[object] = []
        copies: list[tuple[int, NDArray[np.generic]]] = []
        for number, argument in enumerate(arguments):
            if isinstance(argument, int):
                values.append(ctypes.c_int64(argument))
                continue
            array = np.ascontiguousarray(argument)
            address = self._library.daceml_make_array(
                f"{number}".encode(), ctypes.c_size_t(array.nbytes), int(edge)
            )
            if address is None:
                raise MemoryError(f"no memory for array {number} of {array.nbytes} bytes")
            ctypes.memmove(address, array.ctypes.data, array.nbytes)
            values.append(ctypes.c_void_p(address))
            copies.append((address, array))
        return values, copies

    def _error(self) -> str:
        return self._library.daceml_error().decode(errors="replace")


def _read(address: int, like: NDArray[np.generic]) -> NDArray[np.generic]:
    result = np.empty_like(like)
    ctypes.memmove(result.ctypes.data, address, result.nbytes)
    return result
