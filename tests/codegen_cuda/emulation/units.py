"""Device code for tests, compiled once for each text and process."""

from __future__ import annotations

import tempfile
from functools import lru_cache
from pathlib import Path

from daceml.codegen_cuda.emulation.compiler import compile_scheduler
from daceml.codegen_cuda.emulation.emulator import EmulatedUnit, compile_unit
from daceml.config import config
from daceml.toolchain.cxx import include_folder


@lru_cache(maxsize=1)
def _scheduler() -> tuple[Path, list[Path]]:
    folder = Path(tempfile.mkdtemp(prefix="daceml-emulation-"))
    return folder, compile_scheduler(folder, cxx=config().cxx, includes=(include_folder(),))


@lru_cache(maxsize=64)
def emulated(text: str) -> EmulatedUnit:
    """Device code that includes what it needs."""
    folder, scheduler = _scheduler()
    own = Path(tempfile.mkdtemp(dir=folder))
    includes = (include_folder(),)
    return compile_unit(text, own, cxx=config().cxx, scheduler=scheduler, includes=includes)


def unit(source: str) -> EmulatedUnit:
    """Kernels and launches behind the device's headers."""
    text = "#include <daceml/device.h>\n#include <daceml/collectives.h>\n#include <daceml/vectors.h>\n"
    return emulated(f"{text}#line 1\n{source}")
