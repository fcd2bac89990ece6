"""Where CUDA's headers and libraries lie: in toolkits, and in NVIDIA's wheels.

Wheels of CUDA 13 share one folder, `nvidia/cu13`, which holds what a toolkit does. Those of CUDA 12 have a
folder for each part, and none of them has nvcc.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

# header -> what it belongs to
HEADERS = {
    "cuda_runtime.h": "the CUDA runtime",
    "nv/target": "CCCL",
    "cublas_v2.h": "cuBLAS",
    "cudnn.h": "cuDNN",
}
_TOP = re.compile(r"^#\$ TOP=(.+)$", re.MULTILINE)
_PARTS_OF_12 = ("cuda_nvcc", "cuda_runtime", "cuda_cccl", "cublas", "nvtx")
_OF_ANY = ("cudnn",)
# compilers look there anyway, and before what is named to them
_SYSTEM = (
    Path("/usr/include"),
    Path("/usr/include/x86_64-linux-gnu"),
    Path("/usr/include/aarch64-linux-gnu"),
)


def wheel_folders(major: int) -> tuple[Path, ...]:
    """Folders of NVIDIA's wheels for a release of CUDA that are installed in this environment."""
    try:
        spec = find_spec("nvidia")
    except ModuleNotFoundError:
        return ()
    homes = [Path(home) for home in (spec.submodule_search_locations or ())] if spec is not None else []
    parts = (f"cu{major}", *(_PARTS_OF_12 if major == 12 else ()), *_OF_ANY)
    return tuple(home / part for home in homes for part in parts if (home / part).is_dir())


@lru_cache(maxsize=8)
def toolkit_folder(nvcc: str) -> Path:
    """The folder of which nvcc takes its own headers and libraries.

    nvcc is asked: what lies on PATH may be a script, or a link into another folder.
    """
    command = [nvcc, "-dryrun", "-x", "cu", "-c", "/dev/null", "-o", "/dev/null"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    said = _TOP.search(done.stderr + done.stdout)
    return Path(said[1]).resolve() if said is not None else Path(nvcc).resolve().parent.parent


def header_folders(nvcc: str, major: int) -> dict[str, Path | None]:
    """Header, as in `HEADERS` -> the folder to name to a compiler, None where nobody has it.

    Those of the toolkit come first: they fit its nvcc.
    """
    places = [*_include_folders((toolkit_folder(nvcc), *wheel_folders(major))), *_SYSTEM]
    return {
        header: next((place for place in places if (place / header).is_file()), None) for header in HEADERS
    }


def include_folders(nvcc: str, major: int) -> tuple[Path, ...]:
    """Folders to name to a C++ compiler for the headers that are there, each once."""
    found = header_folders(nvcc, major).values()
    return tuple(dict.fromkeys(place for place in found if place is not None and place not in _SYSTEM))


def library_folders(nvcc: str, major: int) -> tuple[Path, ...]:
    """Library folders: those of NVIDIA's wheels, which torch loads if it has them; then the toolkit's."""
    places = [home / "lib" for home in wheel_folders(major)]
    top = toolkit_folder(nvcc)
    places += [top / "lib64", *sorted(top.glob("targets/*/lib")), top / "lib"]
    if top == Path("/usr"):
        places += sorted(top.glob("lib/*-linux-gnu"))
    return tuple(place for place in places if place.is_dir())


def cudart_library(nvcc: str, major: int) -> Path | None:
    """The CUDA runtime that programs are linked to; None where there is none of this release.

    One process has one of them: if torch brought it in a wheel, that is taken.
    """
    names = (f"libcudart.so.{major}", "libcudart.so")
    places = library_folders(nvcc, major)
    return next((place / name for place in places for name in names if (place / name).is_file()), None)


def _include_folders(homes: Iterable[Path]) -> Iterable[Path]:
    for home in homes:
        for place in (home / "include", *sorted(home.glob("targets/*/include"))):
            yield place
            # where CUDA 13 keeps CCCL
            yield place / "cccl"
