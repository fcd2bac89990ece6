"""Run a command with the fake device: `python -m tests.codegen_cuda.fake_device.run [COMMAND …]`.

In the command and all that it starts, torch has two CUDA devices. Without a command the tests of this folder
run.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tests.codegen_cuda.fake_device.install import FOLDER
from tests.codegen_cuda.fake_device.libraries import build_libraries, build_torch_calls, cuda_home, missing

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
        # of a folder that changes with the emulation, which is no part of a kernel's key
        "DACEML_CACHE": str(runtime.parent / "kernels"),
    }


def _compiler(folder: Path, cxx: str = "g++") -> Path:
    """The stand-in for nvcc as a program; it runs without the fake device."""
    script = folder / "nvcc"
    command = f'"{sys.executable}" -m tests.codegen_cuda.fake_device.nvcc {cxx} "{cuda_home()}"'
    script.write_text(f'#!/bin/sh\nexec env -u LD_PRELOAD PYTHONPATH="{ROOT}" {command} "$@"\n')
    script.chmod(0o755)
    return script


def main(command: list[str]) -> None:
    """Replace this process by the command."""
    reason = missing()
    if reason is not None:
        sys.exit(reason)
    wanted = command or list(TESTS)
    os.execvpe(wanted[0], wanted, environment())


if __name__ == "__main__":
    main(sys.argv[1:])
