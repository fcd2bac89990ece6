"""The libraries of the fake device: stand-ins for CUDA's runtime and its driver, and for torch's calls."""

from __future__ import annotations

import re
import shutil
import subprocess
from functools import lru_cache
from pathlib import Path

from daceml.codegen_cuda.cuda_files import wheel_folders
from daceml.codegen_cuda.emulation import compiler as emulation
from daceml.codegen_cuda.toolchain import TOOLKIT
from daceml.toolchain.cache import digest
from daceml.toolchain.cxx import include_folder
from tests.codegen_cuda.fake_device.torch_functions import functions_text

RUNTIME = Path(__file__).parent / "runtime"
TORCH_CALLS = Path(__file__).parent / "torch_calls"
MAJOR = 13
CUDART, DRIVER = f"libcudart.so.{MAJOR}", "libcuda.so.1"
_DRIVER_FUNCTION = re.compile(r"\bCUDAAPI (cu[A-Z]\w*)\s*\(")
_DRIVER_VERSION = re.compile(
    r"^\s*#\s*define (cu[A-Z]\w*)\s+(?:__CUDA_API_PT\w+\()?(cu[A-Z]\w*)", re.MULTILINE
)
_OF_DRIVER = ("driver.cpp",)
_SEEN = """{
  global: cu*; __cuda*; fake_device_*; extern "C++" { daceml::emulation::*; fake::launch*; };
  local: *;
};"""


def missing() -> str | None:
    """Why the fake device cannot be here, as one sentence; None where it can."""
    import torch

    if torch.version.cuda is None:
        return "this torch has no CUDA for the fake device to stand in for: make fake-device installs one"
    if int(torch.version.cuda.split(".")[0]) != MAJOR:
        return f"the fake device stands in for CUDA {MAJOR}, and this torch is for {torch.version.cuda}"
    if cuda_home() is None:
        return "headers of CUDA 13 are missing: pip install nvidia-cuda-runtime nvidia-cuda-crt, both 13.0"
    return None


@lru_cache(maxsize=1)
def cuda_home() -> Path | None:
    """The folder whose `include` has all headers of CUDA's runtime: that of NVIDIA's wheels, or a toolkit."""
    wanted = ("cuda.h", "cuda_runtime.h", "crt/host_defines.h")
    homes = (*wheel_folders(MAJOR), TOOLKIT)
    return next((home for home in homes if all((home / "include" / one).is_file() for one in wanted)), None)


def build_libraries(folder: Path, *, cxx: str = "g++") -> tuple[Path, Path]:
    """CUDA's runtime and driver for LD_PRELOAD, the emulation of kernels among them.

    Args:
        folder: where they lie, under a name that changes with what they are made of.
    """
    home = cuda_home()
    assert home is not None, "the caller asks `missing` first"
    sources = sorted(RUNTIME.glob("*.cpp"))
    made = folder / digest(
        emulation.fingerprint(), *(one.read_text() for one in (*sources, *RUNTIME.glob("*.h"))), _SEEN
    )
    found = made / CUDART, made / DRIVER
    if all(one.is_file() for one in found):
        return found
    work = made.with_suffix(".new")
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    objects = emulation.compile_scheduler(work, cxx=cxx, includes=(include_folder(),))
    for source in sources:
        objects.append(work / f"{source.stem}.o")
        _run(
            [
                cxx,
                "-std=c++20",
                "-O2",
                "-g",
                "-fPIC",
                "-Wall",
                "-Wextra",
                f"-I{home / 'include'}",
                f"-I{emulation.INCLUDE}",
                "-c",
                str(source),
                "-o",
                str(objects[-1]),
            ]
        )
    drivers = [one for one in objects if f"{one.stem}.cpp" in _OF_DRIVER]
    others = [one for one in objects if one not in drivers]
    _link(
        others,
        work / CUDART,
        sorted(_exported(_real_runtime(home)) - _defined(others)),
        "fake_device_lacks",
        cxx,
    )
    _link(
        drivers,
        work / DRIVER,
        sorted(_driver_functions(home) - _defined(drivers)),
        "fake_device_lacks_of_driver",
        cxx,
    )
    for one in objects:
        one.unlink()
    work.rename(made)
    return found


def build_torch_calls(folder: Path, *, cxx: str = "g++") -> Path:
    """The library that leads torch's C functions for CUDA through its dispatcher."""
    import torch

    home = cuda_home()
    assert home is not None, "the caller asks `missing` first"
    package = Path(torch.__file__).parent
    text, _ = functions_text(package / "include")
    boxed = TORCH_CALLS / "boxed.h"
    made = folder / digest(text, boxed.read_text(), torch.__version__)
    library = made / "torch_calls.so"
    if library.is_file():
        return library
    work = made.with_suffix(".new")
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    (work / "torch_calls.cpp").write_text(text)
    includes = [
        TORCH_CALLS,
        package / "include",
        package / "include/torch/csrc/api/include",
        home / "include",
    ]
    libraries = [f"-L{package / 'lib'}", "-Wl,--no-as-needed", "-ltorch_cuda", "-ltorch_cpu", "-lc10"]
    _run(
        [
            cxx,
            "-std=c++20",
            "-O0",
            "-w",
            "-fPIC",
            "-shared",
            *(f"-I{one}" for one in includes),
            str(work / "torch_calls.cpp"),
            *libraries,
            "-o",
            str(work / library.name),
        ]
    )
    work.rename(made)
    return library


def _link(objects: list[Path], library: Path, lacking: list[str], refusal: str, cxx: str) -> None:
    """A library with a function for every name that it lacks, which says so."""
    stubs = library.parent / f"{library.name}.lacking.cpp"
    lines = [f'int {name}() {{ return fake_device_lacks("{name}"); }}' for name in lacking]
    stubs.write_text('extern "C" {\nint fake_device_lacks(const char*);\n' + "\n".join(lines) + "\n}\n")
    script = library.parent / f"{library.name}.map"
    script.write_text(f"{library.name if library.name == CUDART else ''} {_SEEN}\n")
    _run(
        [
            cxx,
            "-shared",
            "-fPIC",
            *map(str, objects),
            str(stubs),
            f"-Wl,--version-script={script}",
            f"-Wl,-soname,{library.name}",
            "-ldl",
            "-o",
            str(library),
        ]
    )


def _real_runtime(home: Path) -> Path:
    places = [folder / "lib" / CUDART for folder in wheel_folders(MAJOR)]
    places += [home / "lib64" / CUDART, home / "lib" / CUDART]
    return next(place for place in places if place.is_file())


def _exported(library: Path) -> set[str]:
    said = _run(["nm", "-D", "--defined-only", str(library)])
    return {line.split()[-1].partition("@")[0] for line in said.splitlines() if " T " in line}


def _defined(objects: list[Path]) -> set[str]:
    return {
        line.split()[-1] for one in objects for line in _run(["nm", str(one)]).splitlines() if " T " in line
    }


def _driver_functions(home: Path) -> set[str]:
    text = (home / "include" / "cuda.h").read_text()
    versions = {name for pair in _DRIVER_VERSION.findall(text) for name in pair}
    return set(_DRIVER_FUNCTION.findall(text)) | versions


def _run(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command[:3])} … failed:\n{done.stderr[:4000]}")
    return done.stdout
