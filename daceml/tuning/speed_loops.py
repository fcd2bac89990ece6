"""The library of `speed_loops.cpp`: loops of which kernels consist, compiled as kernels are, to be timed."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path

import torch

from daceml.codegen.kernel_objects import lanes_object
from daceml.toolchain.cache import Cache, digest
from daceml.toolchain.cxx import precompiled_header, toolchain

SOURCE = Path(__file__).with_name("speed_loops.cpp")
LOOPS = (
    *("exp", "log", "erf", "divide", "pow", "chain", "add"),
    *("shared_add", "streamed_add", "region"),
)
"""What each does stands in `speed_loops.cpp`; those with `add` read twice as many elements as they write."""


class Speeds:
    """The loops, to be called with tensors of float32: results, operands.

    Args:
        cache: where the library is, or will be.
    Raises:
        BuildError: the compiler refuses.
    """

    def __init__(self, cache: Cache) -> None:
        tools, text = toolchain(), SOURCE.read_text()

        def build(folder: Path) -> None:
            tools.compile_kernel(text, folder, precompiled_header(cache))
            objects, seen = [Path("kernel.o"), lanes_object(cache)], [f"daceml_speed_{n}" for n in LOOPS]
            tools.link_library(objects, folder / "speeds.so", seen, None)

        folder = cache.get("speeds", digest(tools.fingerprint, text), build)
        self._library = ctypes.CDLL(str(folder / "speeds.so"))

    def loop(self, name: str, elements: int) -> Callable[[], None]:
        """A loop over so many elements, each call of which runs it once; operands are all ones."""
        if name not in LOOPS:
            raise ValueError(f"{name} is none of {', '.join(LOOPS)}")
        function = getattr(self._library, f"daceml_speed_{name}")
        function.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64]
        function.restype = None
        made, given = torch.ones(elements), torch.ones((2 if name.endswith("add") else 1) * elements)
        to, of = made.data_ptr(), given.data_ptr()

        def run(keep: tuple[torch.Tensor, torch.Tensor] = (made, given)) -> None:
            function(to, of, elements)

        return run
