"""The CUDA compiler: where it is, what it is asked for, and what it says of a kernel."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from daceml.codegen_cuda.cuda_files import cudart_library, include_folders, library_folders, wheel_folders
from daceml.codegen_cuda.kernel_facts import CompiledFacts, kernel_facts, save_facts
from daceml.config import config
from daceml.errors import EnvironmentProblem
from daceml.runtime.records.kernel_facts import KernelFacts
from daceml.toolchain.compiler_process import run_compiler

if TYPE_CHECKING:
    import torch

INCLUDE = Path(__file__).parent / "include"
OLDEST_RELEASE = (12, 0)  # with C++20
OLDEST_ARCHITECTURE = 70  # shuffles with masks, independent threads
WITHOUT_DEVICE = 90
INSTALL = "install the CUDA toolkit, or NVIDIA's wheels: pip install 'daceml[cuda-build]'"

# A product is rounded before it is added to something, as on a processor: kernels that compute a value twice
# compute the same one. Division and square root are exact, and denormals stay, which are nvcc's defaults.
_FLAGS = ("-std=c++20", "-O3", "-fmad=false", "--expt-relaxed-constexpr", "-Xcompiler", "-fPIC")
_RELEASE = re.compile(r"release (\d+)\.(\d+)")
_LISTED = re.compile(r"^compute_(\d+)\s*$", re.MULTILINE)
TOOLKIT = Path("/usr/local/cuda")
# of NVIDIA's wheels only those of these releases have nvcc
_RELEASES_WITH_WHEELS = (13,)


@dataclass(frozen=True, kw_only=True)
class CudaToolchain:
    """nvcc, and everything that decides what it makes of a text.

    Attributes:
        nvcc: absolute path.
        release: (13, 0), for example.
        architecture: 90 for compute capability 9.0.
    """

    nvcc: str
    release: tuple[int, int]
    architecture: int

    @property
    def fingerprint(self) -> str:
        """Of compiler, flags, architecture and headers: everything that decides what it makes of a text."""
        sha = hashlib.sha256(" ".join((*map(str, self.release), str(self.architecture), *_FLAGS)).encode())
        for header in sorted((INCLUDE / "daceml").glob("*.h")):
            sha.update(header.read_bytes())
        return sha.hexdigest()

    @property
    def includes(self) -> tuple[Path, ...]:
        """Folders of the headers of CUDA's runtime, CCCL, cuBLAS and cuDNN, as far as they are here.

        nvcc finds the first two itself; a C++ compiler does not.
        """
        return include_folders(self.nvcc, self.release[0])

    @property
    def libraries(self) -> tuple[Path, ...]:
        """Folders of CUDA's libraries; those of wheels, which torch loads, come first."""
        return library_folders(self.nvcc, self.release[0])

    @property
    def cudart(self) -> Path:
        """The CUDA runtime to link programs to: that of torch's wheels if there, else the toolkit's.

        Raises:
            EnvironmentProblem: there is none of the compiler's release.
        """
        major = self.release[0]
        found = cudart_library(self.nvcc, major)
        if found is None:
            package = "nvidia-cuda-runtime" if major >= 13 else f"nvidia-cuda-runtime-cu{major}"
            raise EnvironmentProblem(
                f"libcudart.so.{major} was not found",
                where=self.nvcc,
                why="compiled kernels are linked to the runtime of their compiler's release; neither NVIDIA's"
                " wheels nor the toolkit have it",
                fix=f"pip install {package}, or install the whole toolkit",
            )
        return found

    def compile(
        self, text: str, folder: Path, *, includes: Sequence[Path] = (), name: str = "kernel"
    ) -> dict[str, KernelFacts]:
        """Write `NAME.cu`, `NAME.o` and its facts into a folder; gives these, by each kernel's mangled name.

        Raises:
            BuildError: the compiler refused the text.
        """
        (folder / f"{name}.cu").write_text(text)
        command = [
            self.nvcc,
            *_FLAGS,
            f"-arch=sm_{self.architecture}",
            "-Xptxas=-v",
            *(f"-I{one}" for one in (INCLUDE, *includes)),
            "-c",
            f"{name}.cu",
            "-o",
            f"{name}.o",
        ]
        said = run_compiler(command, folder, name="nvcc", where=folder / f"{name}.cu")
        facts = kernel_facts(said)
        save_facts(CompiledFacts(architecture=self.architecture, kernels=facts), folder / f"{name}.o")
        return facts


@lru_cache
def cuda_toolchain(architecture: int | None = None) -> CudaToolchain:
    """The CUDA compiler of this process.

    Args:
        architecture: what code is made for, 90 for compute capability 9.0; that of the device where None.
    Raises:
        EnvironmentProblem: there is none, it is too old, or it makes no code for the device.
    """
    found = locate_nvcc()
    if found is None:
        raise EnvironmentProblem(
            "there is no CUDA compiler",
            why="nvcc is not on PATH, nor under CUDA_HOME or /usr/local/cuda, nor in NVIDIA's wheels",
            fix=f"{INSTALL}, or name nvcc in DACEML_NVCC",
        )
    nvcc, _ = found
    release = _release(nvcc)
    if release < OLDEST_RELEASE:
        raise EnvironmentProblem(
            f"CUDA {release[0]}.{release[1]} is too old",
            where=nvcc,
            why=f"generated code is C++20, which nvcc has from {OLDEST_RELEASE[0]}.{OLDEST_RELEASE[1]} on",
            fix="install a newer CUDA toolkit, or name its nvcc in DACEML_NVCC",
        )
    _check_release(release, nvcc)
    architecture = architecture or chosen_architecture()[0]
    known = architectures(nvcc)
    if architecture not in known:
        raise _no_code_for(architecture, known, release, nvcc)
    return CudaToolchain(nvcc=nvcc, release=release, architecture=architecture)


def _check_release(release: tuple[int, int], nvcc: str) -> None:
    """Refuse a compiler whose runtime is another one than torch's: a process has one of them."""
    import torch

    of_torch = torch.version.cuda
    if of_torch is not None and int(of_torch.split(".")[0]) != release[0]:
        raise EnvironmentProblem(
            f"CUDA {release[0]}.{release[1]} and torch's CUDA {of_torch} are different releases",
            where=nvcc,
            why="compiled kernels are linked to the runtime of their compiler, and torch has loaded its own",
            fix=f"install CUDA {of_torch.split('.')[0]}, or name its nvcc in DACEML_NVCC",
        )


def find_nvcc() -> str | None:
    """The first nvcc of: DACEML_NVCC, PATH, CUDA_HOME, /usr/local/cuda, the wheels of NVIDIA."""
    found = locate_nvcc()
    return None if found is None else found[0]


def locate_nvcc() -> tuple[str, str] | None:
    """What `find_nvcc` finds, and where that was."""
    named = config().nvcc
    if named:
        path = shutil.which(named)
        return None if path is None else (path, "DACEML_NVCC")
    on_path = shutil.which("nvcc")
    if on_path is not None:
        return on_path, "PATH"
    for folder, place in _candidates():
        found = folder / "bin" / "nvcc"
        if os.access(found, os.X_OK):
            return str(found), place
    return None


def nvtx_folder() -> Path | None:
    """The folder of headers that has `nvtx3/`, beside nvcc, in another toolkit or in NVIDIA's wheels."""
    nvcc = find_nvcc()
    beside = [] if nvcc is None else [Path(os.path.realpath(nvcc)).parents[1]]
    places = (*beside, *(folder for folder, _ in _candidates()), *wheel_folders(12))
    folders = (folder / "include" for folder in places)
    return next((folder for folder in folders if (folder / "nvtx3" / "nvToolsExt.h").is_file()), None)


def _candidates() -> Iterable[tuple[Path, str]]:
    home = os.environ.get("CUDA_HOME")
    if home:
        yield Path(home), "CUDA_HOME"
    yield TOOLKIT, str(TOOLKIT)
    for major in _RELEASES_WITH_WHEELS:
        for folder in wheel_folders(major):
            yield folder, "NVIDIA's wheels"


@lru_cache(maxsize=8)
def architectures(nvcc: str) -> tuple[int, ...]:
    """Compute capabilities, times 10, that a compiler makes code for and that daceml supports; ascending."""
    done = subprocess.run([nvcc, "--list-gpu-arch"], capture_output=True, text=True, check=False)
    listed = {int(number) for number in _LISTED.findall(done.stdout)}
    return tuple(sorted(one for one in listed if one >= OLDEST_ARCHITECTURE))


def device_architecture(device: torch.device | None = None) -> int:
    """DACEML_CUDA_ARCH, else that of a CUDA device, else 90.

    Args:
        device: torch's current one where None.
    """
    return chosen_architecture(device)[0]


def chosen_architecture(device: torch.device | None = None) -> tuple[int, str]:
    """What `device_architecture` gives, and where it is from."""
    if config().cuda_arch:
        return config().cuda_arch, "DACEML_CUDA_ARCH"
    import torch

    if torch.cuda.is_available():
        major, minor = torch.cuda.get_device_capability(device)
        return 10 * major + minor, "the device"
    return WITHOUT_DEVICE, "no device is here"


def _no_code_for(
    architecture: int, known: Sequence[int], release: tuple[int, int], nvcc: str
) -> EnvironmentProblem:
    if not known:
        why = "it does not say for which compute capabilities it makes code (nvcc --list-gpu-arch)"
        fix = "name another nvcc in DACEML_NVCC"
    else:
        why = f"of those that daceml supports it has {', '.join(f'{one / 10:.1f}' for one in known)}"
        fix = "name one of these in DACEML_CUDA_ARCH, or install a newer CUDA toolkit"
    if known and architecture < known[0]:
        fix = "install CUDA 12 for devices of 7.0 and 7.2; older ones are not supported"
    return EnvironmentProblem(
        f"CUDA {release[0]}.{release[1]} makes no code for compute capability {architecture / 10:.1f}",
        where=nvcc,
        why=why,
        fix=fix,
    )


def _release(nvcc: str) -> tuple[int, int]:
    done = subprocess.run([nvcc, "--version"], capture_output=True, text=True, check=False)
    found = _RELEASE.search(done.stdout)
    if found is None:
        raise EnvironmentProblem(
            "the CUDA compiler does not say its version",
            where=nvcc,
            why=(done.stderr or done.stdout).strip()[:300] or "it printed nothing",
            fix="name another nvcc in DACEML_NVCC",
        )
    return int(found[1]), int(found[2])
