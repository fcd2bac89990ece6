"""The C++ compiler: flags, the precompiled header, objects and libraries."""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from daceml.config import config
from daceml.errors import BuildError, EnvironmentProblem
from daceml.toolchain.cache import Cache, digest
from daceml.toolchain.compiler_process import run_compiler
from daceml.toolchain.torch_declarations import TORCH_HEADERS, declarations

if TYPE_CHECKING:
    from daceml.sdfg.network import Device

# No -ffast-math: masks use -inf and users ask for isnan. Without errno and traps, loops over math calls
# vectorise.
_OPTIMISE = ("-O3", "-fno-math-errno", "-fno-trapping-math")
_NATIVE = ("-march=native",)
_BASELINE = ("-march=x86-64", "-mtune=generic") if platform.machine() == "x86_64" else ()
# A product rounds before it is added to something, as in eager PyTorch: a value that two loops compute is the
# same in both, and x == x.amax() finds it. Generated products of matrices take 1.1 to 1.2 times as long.
_ROUNDED = ("-ffp-contract=off",)
# gcc 12 unrolls short inner loops before it vectorises, and then takes the condition of the first of several
# conditional loads for all: relu(x) <= 0 ? 0 : a * b, in rows of 3, 5 or 6, gave wrong numbers. It unrolls
# once more afterwards, which is right.
_RIGHT = ("-fdisable-tree-cunrolli",)
# gcc stops at 256 bits by default; vector math gains from 512 where the processor has them (Mish: 2.4 times)
_WIDE = ("-mprefer-vector-width=512",) if platform.machine() == "x86_64" else ()
# gcc keeps more digits of native halves in its vectors than in what is left over (x + 2048 - 2048)
_COMMON = ("-std=c++20", "-DDACE_HALF_NO_NATIVE", "-fPIC", "-fopenmp", "-w")
# A driver only calls: optimising it costs compile time and gains nothing that can be measured.
_CALLING = ("-O0",)
_HEADER = "daceml_kernel.h"
_KERNEL_INCLUDE = "#include <daceml/kernel.h>\n"
_DRIVER_HEADER = "daceml_driver.h"
# What drivers of the processor begin with; reading it takes longer than the rest of most drivers
_DRIVER_INCLUDES = (
    "#include <daceml/lean_library.h>\n#include <daceml/aten.h>\n#include <daceml/size_functions.h>\n"
)
_TORCH_HEADER = "daceml_torch.h"
_TORCH_CUDA_HEADER = "daceml_torch_cuda.h"
_TORCH_LIBRARIES = ("libtorch_cpu.so", "libc10.so")
_TORCH_CUDA = "libtorch_cuda.so"
# Those that code for vectors may consist of, by names that both GCC and Clang know
_FEATURES = (
    *("sse4.2", "sse4a", "popcnt", "lzcnt", "bmi", "bmi2", "f16c", "fma", "fma4", "xop", "gfni"),
    *("avx", "avx2", "avxvnni", "avx512f", "avx512cd", "avx512dq", "avx512bw", "avx512vl", "avx512ifma"),
    *("avx512vbmi", "avx512vbmi2", "avx512vnni", "avx512bitalg", "avx512vpopcntdq", "avx512bf16"),
    "avx512fp16",
)


@dataclass(frozen=True, kw_only=True)
class Toolchain:
    """A compiler with everything that decides what it makes of a text.

    Attributes:
        cxx: absolute path of the compiler.
        flags: of every object.
        fingerprint: of flags and headers, and of compiler and processor where programs depend on them; part
            of every cache key.
    """

    cxx: str
    flags: tuple[str, ...]
    fingerprint: str

    def compile_kernel(self, text: str, folder: Path, header: Path) -> None:
        """Write `kernel.cpp` and `kernel.o`; `header` is the folder of the precompiled header."""
        (folder / "kernel.cpp").write_text(text)
        self._run(
            ["-include", str(header / _HEADER), *self._includes(), "-c", "kernel.cpp", "-o", "kernel.o"],
            folder,
        )

    def compile_kernels(self, texts: Sequence[str], folder: Path, header: Path) -> Path:
        """Compile several kernels into one object of many sections; `header` as in `compile_kernel`."""
        (folder / "kernels.cpp").write_text("\n".join(texts))
        # of equal kernels, each keeps its code: folded into one, it would lie in the objects of both
        sections = ["-ffunction-sections", "-fdata-sections", "-fno-ipa-icf"]
        included = ["-include", str(header / _HEADER), *self._includes()]
        self._run([*sections, *included, "-c", "kernels.cpp", "-o", "kernels.o"], folder)
        return folder / "kernels.o"

    def take_kernel(self, text: str, entry: str, together: Path, folder: Path, linker: str) -> None:
        """Write `kernel.cpp` and `kernel.o` of one kernel out of an object of several.

        Args:
            entry: name of the function that the kernel exports; what it does not reach stays behind.
        """
        (folder / "kernel.cpp").write_text(text)
        self._call(
            [linker, "-r", "--gc-sections", "-e", entry, "-o", "kernel.o", str(together)], folder, "linker"
        )

    def compile_source(self, source: Path, folder: Path) -> None:
        """Write `NAME.o` of a file that includes what it needs."""
        self._run([*self._includes(), "-c", str(source), "-o", f"{source.stem}.o"], folder)

    def compile_part(self, source: Path, folder: Path, torch_header: Path) -> None:
        """Write `NAME.o` of functions that drivers call; `torch_header` as in `compile_driver`."""
        includes = [*self._includes(), f"-I{torch_header}"]
        self._run([*includes, "-c", str(source), "-o", f"{source.stem}.o"], folder)

    def compile_header(self, folder: Path) -> None:
        """Write the header that all kernels include, and its precompiled form."""
        command = [*self._includes(), "-x", "c++-header", _HEADER, "-o", f"{_HEADER}.gch"]
        try:
            (folder / _HEADER).write_text(f"#define DACEML_LEAN_COMPLEX\n{_KERNEL_INCLUDE}")
            self._run(command, folder)
        except BuildError:  # a library whose <complex> needs more of streams
            (folder / _HEADER).write_text(_KERNEL_INCLUDE)
            self._run(command, folder)

    def declare_torch(self, folder: Path) -> None:
        """Write the header with torch's C functions, and libraries that stand for torch's when linking.

        They have torch's names and nothing in them: reading the symbols of the real ones takes longer than
        everything else in a link, and the loader looks symbols up again anyway.
        """
        (folder / "torch.cpp").write_text("".join(f"#include <{header}>\n" for header in TORCH_HEADERS))
        self._run([*self._torch_includes(), "-E", "-P", "torch.cpp", "-o", "torch.i"], folder)
        made = declarations((folder / "torch.i").read_text())
        (folder / _TORCH_HEADER).write_text(made.common)
        (folder / _TORCH_CUDA_HEADER).write_text(made.cuda)
        (folder / "torch.i").unlink()
        for library in (*_TORCH_LIBRARIES, _TORCH_CUDA):
            self._run(["-shared", "-nostdlib", f"-Wl,-soname,{library}", "-o", library], folder)

    def compile_driver_header(self, folder: Path, torch_header: Path) -> None:
        """Write the header that drivers of the processor include, and its precompiled form."""
        (folder / _DRIVER_HEADER).write_text(_DRIVER_INCLUDES)
        includes = [f"-I{include_folder()}", f"-I{torch_header}"]
        header = ["-x", "c++-header", _DRIVER_HEADER, "-o", f"{_DRIVER_HEADER}.gch"]
        self._run([*includes, *_CALLING, *header], folder)

    def compile_driver(
        self,
        text: str,
        folder: Path,
        torch_header: Path,
        header: Path | None = None,
        *,
        system: Sequence[Path] = (),
    ) -> None:
        """Write `driver.cpp` and `driver.o`.

        Args:
            torch_header: the folder of torch's C functions.
            header: the folder of the precompiled header, for a driver of the processor.
            system: further folders of headers, whose warnings do not count.
        """
        (folder / "driver.cpp").write_text(text)
        includes = [f"-I{include_folder()}", f"-I{torch_header}"]
        if header is not None:
            includes += ["-include", str(header / _DRIVER_HEADER)]
        includes += [f"-isystem{place}" for place in system]
        self._run([*includes, *_CALLING, "-c", "driver.cpp", "-o", "driver.o"], folder)

    def link_program(
        self, objects: list[Path], folder: Path, torch_header: Path, *, cudart: Path | None = None
    ) -> None:
        """Write `program.so` from `driver.o`, which goes, and the kernels.

        Args:
            cudart: CUDA's runtime library, for a program on such a device.
        """
        device = [] if cudart is None else [str(cudart), f"-l:{_TORCH_CUDA}"]
        self._link(["driver.o", *map(str, objects)], folder / "program.so", torch_header, device)
        (folder / "driver.o").unlink()

    def compile_anywhere(self, text: str, folder: Path, name: str, torch_header: Path) -> Path:
        """The object of a text that calls more than it computes, for every processor of this kind."""
        (folder / f"{name}.cpp").write_text(text)
        includes = [f"-I{include_folder()}", f"-I{torch_header}"]
        self._run([*_BASELINE, *includes, "-O2", "-c", f"{name}.cpp", "-o", f"{name}.o"], folder)
        return folder / f"{name}.o"

    def link_library(
        self, objects: Sequence[Path], library: Path, exported: Sequence[str], torch_header: Path | None
    ) -> None:
        """Write a library that others link to, in which only some functions can be seen.

        Args:
            torch_header: where it needs torch's libraries, the folder of those that stand for them.
        """
        script = library.with_suffix(".map")
        script.write_text("{ global: " + " ".join(f"{name};" for name in exported) + " local: *; };\n")
        torch = [] if torch_header is None else [f"-L{torch_header}", *(f"-l:{n}" for n in _TORCH_LIBRARIES)]
        whole = [] if torch_header is not None else ["-Wl,--no-undefined"]
        names = [f"-Wl,--version-script={script.name}", f"-Wl,-soname,{library.name}", *whole]
        self._run(
            [
                "-shared",
                *map(str, objects),
                *names,
                "-lmvec",
                "-lm",
                "-Wl,--no-as-needed",
                *torch,
                "-o",
                library.name,
            ],
            library.parent,
        )
        script.unlink()

    def features(self) -> tuple[str, ...]:
        """What compiled code needs of the processor, as `__builtin_cpu_supports` names it."""
        command = [self.cxx, *self.flags, "-dM", "-E", "-x", "c++", "/dev/null"]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        defined = {line.split()[1] for line in done.stdout.splitlines() if line.startswith("#define ")}
        return tuple(name for name in _FEATURES if f"__{name.upper().replace('.', '_')}__" in defined)

    def build_launcher(
        self, calling: Sequence[Path], looping: Sequence[Path], folder: Path, torch_header: Path
    ) -> None:
        """Write `launcher.so`.

        Args:
            calling: sources that call more than they compute, for which the compiler need not try hard.
            looping: sources with loops over data.
            torch_header: the folder of torch's C functions.
        """
        objects: list[str] = []
        for name, sources, level in (("calling", calling, ("-O2",)), ("looping", looping, ())):
            # The headers take longer than the code: they are read once for several sources.
            (folder / f"{name}.cpp").write_text("".join(f'#include "{source}"\n' for source in sources))
            includes = [*self._torch_includes(), f"-I{torch_header}"]
            self._run([*includes, *level, "-c", f"{name}.cpp", "-o", f"{name}.o"], folder)
            objects.append(f"{name}.o")
        self._link(objects, folder / "launcher.so", torch_header)
        for target in objects:
            (folder / target).unlink()

    def _link(self, objects: list[str], library: Path, torch_header: Path, more: Sequence[str] = ()) -> None:
        torch = (f"-L{torch_header}", "-Wl,--no-as-needed", *(f"-l:{name}" for name in _TORCH_LIBRARIES))
        linked = [*objects, "-lmvec", "-lm", *torch, *more]
        self._run(["-shared", *_fast_linker(), *linked, "-o", library.name], library.parent)

    def _includes(self) -> list[str]:
        return [f"-I{include_folder()}", f"-I{_dace_include()}"]

    def _torch_includes(self) -> list[str]:
        return [
            f"-I{include_folder()}",
            f"-I{torch_folder() / 'include'}",
            f"-DTORCH_TARGET_VERSION={_TARGET_TORCH}",
        ]

    def _run(self, arguments: list[str], folder: Path) -> None:
        self._call([self.cxx, *self.flags, *arguments], folder, "C++ compiler")

    def _call(self, command: list[str], folder: Path, name: str) -> None:
        kept = Path(os.path.realpath(folder))
        where = kept / command[-3] if "-c" in command else kept
        run_compiler(command, folder, name=f"the {name}", where=where)


# 2.11, the oldest torch that is supported: symbols newer than that are not used
_TARGET_TORCH = "0x020b000000000000ULL"


@lru_cache(maxsize=1)
def toolchain() -> Toolchain:
    """The compiler of this process.

    Raises:
        EnvironmentProblem: there is no such compiler.
    """
    cxx = shutil.which(config().cxx)
    if cxx is None:
        raise EnvironmentProblem(
            f"there is no C++ compiler {config().cxx!r}",
            why="daceml compiles generated C++ on this machine",
            fix="install g++ (Debian: apt-get install g++), or name a compiler in DACEML_CXX",
        )
    flags = (*_COMMON, *_OPTIMISE, *_NATIVE, *_ROUNDED, *_RIGHT, *_WIDE, *config().cxxflags.split())
    stat = Path(os.path.realpath(cxx)).stat()
    fingerprint = digest(
        os.path.realpath(cxx),
        f"{stat.st_size} {stat.st_mtime_ns}",
        " ".join(flags),
        processor(),
        version("dace"),
        *_headers(),
    )
    return Toolchain(cxx=cxx, flags=flags, fingerprint=fingerprint)


@lru_cache(maxsize=1)
def device_toolchain() -> Toolchain:
    """The compiler as programs for a CUDA device use it: what it makes runs on every processor of this kind.

    The host only launches there. So the fingerprint has neither the processor nor the compiler's version in
    it, and a program that was compiled on one machine is found on another one, whose C library may not be
    older. With flags of the user's own, which may name a processor, the processor is part of it.

    Raises:
        EnvironmentProblem: there is no such compiler.
    """
    own = config().cxxflags.split()
    flags = (*_COMMON, *_OPTIMISE, *_BASELINE, *_ROUNDED, *_RIGHT, *own)
    cxx = toolchain().cxx
    fingerprint = digest(
        "device",
        platform.machine(),
        processor() if own else "",
        Path(cxx).name.split("-")[0],
        " ".join(flags),
        version("dace"),
        *_headers(),
    )
    return Toolchain(cxx=cxx, flags=flags, fingerprint=fingerprint)


def toolchain_for(device: Device) -> Toolchain:
    """The compiler as programs for this device use it.

    Raises:
        EnvironmentProblem: there is no such compiler.
    """
    return toolchain() if device == "cpu" else device_toolchain()


def _headers() -> list[str]:
    return [file.read_text() for file in sorted((include_folder() / "daceml").glob("*.h"))]


@lru_cache(maxsize=1)
def _fast_linker() -> tuple[str, ...]:
    """GNU ld takes 0.04 s of processor for a small program, gold 0.02 s (10 programs of three kernels)."""
    return ("-fuse-ld=gold",) if platform.machine() == "x86_64" and shutil.which("ld.gold") else ()


def precompiled_header(cache: Cache) -> Path:
    """Folder of the precompiled header; made once for each toolchain."""
    tools = toolchain()
    return shared_header(cache, tools.fingerprint, tools.compile_header)


def torch_header(cache: Cache, tools: Toolchain | None = None) -> Path:
    """Folder of the header with torch's C functions; made once for each toolchain and torch.

    Args:
        tools: `toolchain()` where None.
    """
    tools = tools or toolchain()
    return shared_header(cache, digest(tools.fingerprint, "torch", version("torch")), tools.declare_torch)


def driver_header(cache: Cache) -> Path:
    """Folder of the precompiled header of drivers of the processor; made once, as torch's functions are."""
    tools = toolchain()
    key = digest(tools.fingerprint, "driver", version("torch"))
    return shared_header(cache, key, lambda folder: tools.compile_driver_header(folder, torch_header(cache)))


def shared_header(cache: Cache, key: str, make: Callable[[Path], None]) -> Path:
    """Folder of a header that many texts include; its files are read through once by each process."""
    folder = _checked_headers.get((cache.root, key))
    if folder is None or not folder.is_dir():
        folder = _checked_headers[cache.root, key] = cache.get("headers", key, make)
    return folder


# Where this process has looked whether the files are whole, which takes as long as a fifth of a kernel.
_checked_headers: dict[tuple[Path, str], Path] = {}


def include_folder() -> Path:
    """Folder of daceml's own headers."""
    return Path(__file__).parent / "include"


@lru_cache(maxsize=1)
def torch_folder() -> Path:
    """Folder of the torch package, found without importing it."""
    return _package_folder("torch")


@lru_cache(maxsize=1)
def processor() -> str:
    """What `-march=native` depends on."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    wanted = ("model name", "flags", "Features", "CPU part")
    seen = dict(line.split(":", 1) for line in reversed(lines) if line.startswith(wanted) and ":" in line)
    return hashlib.sha256(repr(sorted(seen.items())).encode()).hexdigest()


def _dace_include() -> Path:
    return _package_folder("dace") / "runtime" / "include"


def _package_folder(name: str) -> Path:
    spec = find_spec(name)
    if spec is None or spec.origin is None:
        raise EnvironmentProblem(f"the package {name} is not installed", fix=f"pip install {name}")
    return Path(spec.origin).parent
