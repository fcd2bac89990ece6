"""Run a command with the fake device: `python -m tests.codegen_cuda.fake_device.run [COMMAND …]`.

In the command and all that it starts, torch has two CUDA devices. Without a command the tests of this folder
run.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from daceml.codegen_cuda.emulation import compiler as emulation
from daceml.toolchain.cache import digest
from tests.codegen_cuda.fake_device.install import FOLDER
from tests.codegen_cuda.fake_device.libraries import (
    RUNTIME,
    build_libraries,
    build_torch_calls,
    cuda_home,
    missing,
)

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
BUILD = ROOT / "build" / "fake_device"
TESTS = (sys.executable, "-m", "pytest", str(HERE))


def environment(folder: Path = BUILD) -> dict[str, str]:
    """That of a process with the fake device.

    Args:
        folder: where its libraries and the kernels that are compiled for it lie.
    """
    runtime, driver = build_libraries(folder)
    build_torch_calls(folder)
    paths = (HERE / "site", ROOT, os.environ.get("PYTHONPATH"))
    return {
        **os.environ,
        FOLDER: str(folder),
        "LD_PRELOAD": f"{runtime} {driver}",
        "PYTHONPATH": os.pathsep.join(str(one) for one in paths if one),
        "DACEML_NVCC": str(_compiler(runtime.parent)),
        "DACEML_CACHE": str(folder / f"cache-{_of_kernels()}"),
    }


def _of_kernels() -> str:
    """Of what decides about kernels and is no part of their keys: the emulation, and what launches them."""
    texts = (HERE / "nvcc.py", RUNTIME / "language.h", RUNTIME / "kernels.h")
    return digest(emulation.fingerprint(), *(one.read_text() for one in texts))


def _compiler(folder: Path, cxx: str = "g++") -> Path:
    """The stand-in for nvcc as a program; it runs without the fake device."""
    # a load at an address that is no multiple of what is loaded ends the process, as it ends a device's work
    checking = _script(folder / "g++", f"{cxx} -fsanitize=alignment -fsanitize-undefined-trap-on-error")
    command = f'"{sys.executable}" -m tests.codegen_cuda.fake_device.nvcc "{checking}" "{cuda_home()}"'
    return _script(folder / "nvcc", f'env -u LD_PRELOAD PYTHONPATH="{ROOT}" {command}')


def _script(file: Path, command: str) -> Path:
    file.write_text(f'#!/bin/sh\nexec {command} "$@"\n')
    file.chmod(0o755)
    return file


def main(command: list[str]) -> None:
    """Replace this process by the command."""
    reason = missing()
    if reason is not None:
        sys.exit(reason)
    wanted = command or list(TESTS)
    os.execvpe(wanted[0], wanted, environment())


if __name__ == "__main__":
    main(sys.argv[1:])
