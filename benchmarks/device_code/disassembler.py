"""NVIDIA's disassembler: where it is, and the machine code that it reads from an object.

`cuobjdump` extracts the code from an object and calls `nvdisasm`, so both are needed. NVIDIA's wheels of nvcc
have neither, and some toolkits leave them out. A newer release reads the objects of an older nvcc.

`python -m benchmarks.device_code.disassembler` returns exit code 1 where there is nvcc without them;
`make cuda` installs their wheels then.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from benchmarks.device_code.sass import Instruction, functions_of
from daceml.codegen_cuda.cuda_files import toolkit_folder, wheel_folders
from daceml.codegen_cuda.toolchain import find_nvcc

TOOLS = ("cuobjdump", "nvdisasm")
_RELEASES_WITH_WHEELS = (13,)
_LIMIT_S = 300.0


@dataclass(frozen=True, kw_only=True)
class Disassembler:
    """The two programs, by their paths."""

    cuobjdump: Path
    nvdisasm: Path

    def functions(self, object_file: Path) -> dict[str, list[Instruction]] | str:
        """Instructions of each kernel of an object, by its mangled name; or why it cannot be read."""
        path = os.pathsep.join((str(self.nvdisasm.parent), os.environ.get("PATH", "")))
        done = subprocess.run(
            [str(self.cuobjdump), "-sass", str(object_file)],
            env={**os.environ, "PATH": path},
            capture_output=True,
            text=True,
            check=False,
            timeout=_LIMIT_S,
        )
        found = functions_of(done.stdout)
        if done.returncode == 0 and found:
            return found
        said = (done.stderr or done.stdout).strip().splitlines()
        return f"{self.cuobjdump} reads no machine code: {said[0] if said else 'it printed nothing'}"


def find_disassembler() -> Disassembler | str:
    """The first of each tool on PATH, next to nvcc, in NVIDIA's wheels or in triton's package; or why not."""
    folders = list(_folders())
    found: dict[str, Path] = {}
    for tool in TOOLS:
        on_path = shutil.which(tool)
        places = [Path(on_path)] if on_path is not None else []
        places += [folder / tool for folder in folders]
        usable = (place for place in places if os.access(place, os.X_OK))
        if (first := next(usable, None)) is not None:
            found[tool] = first
    absent = [tool for tool in TOOLS if tool not in found]
    if absent:
        return (
            f"there is no {' and no '.join(absent)} on PATH, next to nvcc, in NVIDIA's wheels or in triton's"
            " package: pip install 'daceml[cuda-sass]'"
        )
    return Disassembler(cuobjdump=found["cuobjdump"], nvdisasm=found["nvdisasm"])


def _folders() -> Iterable[Path]:
    nvcc = find_nvcc()
    if nvcc is not None:
        yield Path(nvcc).resolve().parent
        yield toolkit_folder(nvcc) / "bin"  # what lies on PATH may be a script
    for major in _RELEASES_WITH_WHEELS:
        for folder in wheel_folders(major):
            yield folder / "bin"
    triton = find_spec("triton")
    for home in (triton.submodule_search_locations or ()) if triton is not None else ():
        yield Path(home) / "backends" / "nvidia" / "bin"


def main() -> int:
    found = find_disassembler()
    print(found if isinstance(found, str) else f"{found.cuobjdump}, {found.nvdisasm}")
    return int(isinstance(found, str) and find_nvcc() is not None)


if __name__ == "__main__":
    sys.exit(main())
