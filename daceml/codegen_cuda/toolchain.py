"""The CUDA compiler: where it is, what it is asked for, and what it says of a kernel."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

from daceml.config import config
from daceml.errors import BuildError, EnvironmentProblem

INCLUDE = Path(__file__).parent / "include"
OLDEST_RELEASE = (12, 0)  # with C++20
OLDEST_ARCHITECTURE = 70  # shuffles with masks, independent threads
# of which CUDA 13 no longer makes code below this
_OLDEST_OF_13 = 75

# A product is rounded before it is added to something, as on a processor: kernels that compute a value twice
# compute the same one. Division and square root are exact, and denormals stay, which are nvcc's defaults.
_FLAGS = ("-std=c++20", "-O3", "-fmad=false", "--expt-relaxed-constexpr", "-Xcompiler", "-fPIC")
_RELEASE = re.compile(r"release (\d+)\.(\d+)")
_ENTRY = re.compile(r"Compiling entry function '(\w+)'")
_FRAME = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_REGISTERS, _SHARED = re.compile(r"Used (\d+) registers"), re.compile(r"(\d+) bytes smem")
_WHEELS = ("nvidia.cu13", "nvidia.cuda_nvcc")


@dataclass(frozen=True, kw_only=True)
class KernelFacts:
    """What the assembler says of a kernel.

    Attributes:
        registers: of each thread.
        shared_bytes: of each block, without what a launch adds.
        stack_bytes: of each thread, for arrays that are indexed by what is not known.
        spill_bytes: stored and loaded by each thread because registers did not suffice.
    """

    registers: int
    shared_bytes: int = 0
    stack_bytes: int = 0
    spill_bytes: int = 0


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

    def compile(
        self, text: str, folder: Path, *, includes: Sequence[Path] = (), name: str = "kernel"
    ) -> dict[str, KernelFacts]:
        """Write `NAME.cu` and `NAME.o` into a folder; facts of each kernel, by its mangled name.

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
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise BuildError(
                f"nvcc failed with status {done.returncode}",
                where=str(folder / f"{name}.cu"),
                why="\n".join((done.stderr or done.stdout).strip().splitlines()[:12]) or "it printed nothing",
                fix="run `daceml doctor`; if the compiler is fine, report this message",
            )
        return kernel_facts(done.stderr + done.stdout)


def kernel_facts(said: str) -> dict[str, KernelFacts]:
    """What `ptxas -v` printed, by the mangled name of each kernel.

    It names a kernel, then its stack and spills in one line, and its registers and shared memory in another.
    """
    facts: dict[str, dict[str, int]] = {}
    of: dict[str, int] = {}
    for line in said.splitlines():
        if (entry := _ENTRY.search(line)) is not None:
            of = facts.setdefault(entry[1], {})
        elif "Function properties for" in line:
            # also of functions that a kernel calls, which are not kernels
            name = line.rsplit(" ", 1)[-1]
            of = facts.get(name, {})
        elif (frame := _FRAME.search(line)) is not None:
            of["stack_bytes"] = int(frame[1])
            of["spill_bytes"] = int(frame[2]) + int(frame[3])
        elif (used := _REGISTERS.search(line)) is not None:
            of["registers"] = int(used[1])
            shared = _SHARED.search(line)
            of["shared_bytes"] = int(shared[1]) if shared is not None else 0
    return {name: KernelFacts(**known) for name, known in facts.items() if "registers" in known}


@lru_cache(maxsize=1)
def cuda_toolchain() -> CudaToolchain:
    """The CUDA compiler of this process.

    Raises:
        EnvironmentProblem: there is none, it is too old, or it makes no code for the device.
    """
    nvcc = find_nvcc()
    if nvcc is None:
        raise EnvironmentProblem(
            "there is no CUDA compiler",
            why="nvcc is not on PATH, nor under CUDA_HOME or /usr/local/cuda, nor in NVIDIA's wheels",
            fix="install the CUDA toolkit, or name nvcc in DACEML_NVCC",
        )
    release = _release(nvcc)
    if release < OLDEST_RELEASE:
        raise EnvironmentProblem(
            f"CUDA {release[0]}.{release[1]} is too old",
            where=nvcc,
            why=f"generated code is C++20, which nvcc has from {OLDEST_RELEASE[0]}.{OLDEST_RELEASE[1]} on",
            fix="install a newer CUDA toolkit, or name its nvcc in DACEML_NVCC",
        )
    architecture = device_architecture()
    oldest = _OLDEST_OF_13 if release >= (13, 0) else OLDEST_ARCHITECTURE
    if architecture < oldest:
        raise EnvironmentProblem(
            f"CUDA {release[0]}.{release[1]} makes no code for compute capability {architecture / 10:.1f}",
            where=nvcc,
            why=f"the oldest that it knows, and that daceml uses, is {oldest / 10:.1f}",
            fix="install CUDA 12 for devices of 7.0 and 7.2; older ones are not supported",
        )
    return CudaToolchain(nvcc=nvcc, release=release, architecture=architecture)


def find_nvcc() -> str | None:
    """The first nvcc of: DACEML_NVCC, PATH, CUDA_HOME, /usr/local/cuda, the wheels of NVIDIA."""
    named = config().nvcc
    if named:
        return shutil.which(named)
    on_path = shutil.which("nvcc")
    if on_path is not None:
        return on_path
    for folder in _candidates():
        found = folder / "bin" / "nvcc"
        if os.access(found, os.X_OK):
            return str(found)
    return None


def _candidates() -> Iterable[Path]:
    home = os.environ.get("CUDA_HOME")
    if home:
        yield Path(home)
    yield Path("/usr/local/cuda")
    for package in _WHEELS:
        try:
            spec = find_spec(package)
        except ModuleNotFoundError:
            continue
        if spec is not None:
            yield from map(Path, spec.submodule_search_locations or ())


def device_architecture() -> int:
    """DACEML_CUDA_ARCH, else that of torch's current device, else 90."""
    if config().cuda_arch:
        return config().cuda_arch
    import torch

    if torch.cuda.is_available():
        major, minor = torch.cuda.get_device_capability()
        return 10 * major + minor
    return 90


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
