"""What `daceml doctor` looks at: one function a line of its report."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from daceml.cli.device_checks import check_cuda_compiler, check_devices
from daceml.cli.finding import Finding, Status
from daceml.cli.supported_versions import CMAKE, PYTHON, SUPPORTED, problem
from daceml.errors import ConfigurationError, DacemlError

# A check returns (status, what was found, fix).
Check = Callable[[], tuple[Status, str, str]]


def examine(title: str, check: Check) -> Finding:
    """Run a check; one that fails in an unforeseen way is a finding, too.

    Wrong options are a finding once, and what cannot be checked with them says so.
    """
    try:
        status, found, fix = check()
    except ConfigurationError as error:
        if check is not check_options:
            return Finding(title=title, status="fail", found="not checked: the options are wrong")
        found = f"{error.what}: {error.why}"
        return Finding(title=title, status="fail", found=found, fix=error.fix)
    except DacemlError as error:
        found = f"{error.what}: {error.why}".rstrip(": ")
        return Finding(title=title, status="fail", found=found, fix=error.fix)
    except Exception as error:
        fix = "mend what the message names, then run `daceml doctor` again"
        return Finding(title=title, status="fail", found=f"{type(error).__name__}: {error}", fix=fix)
    return Finding(title=title, status=status, found=found, fix=fix)


def check_python() -> tuple[Status, str, str]:
    """The interpreter."""
    found = platform.python_version()
    reason = problem(found, PYTHON)
    fix = f"make an environment with Python {PYTHON[0]} or newer, before {PYTHON[1]}"
    return ("fail", f"{found}: {reason}", fix) if reason else ("ok", found, "")


def check_package(name: str) -> Check:
    """The check of one package's version."""
    oldest, too_new = SUPPORTED[name]
    limit = f",<{too_new}" if too_new else ""
    fix = f"pip install '{name}{f'=={oldest}' if oldest == too_new else f'>={oldest}{limit}'}'"

    def check() -> tuple[Status, str, str]:
        try:
            found = version(name)
        except PackageNotFoundError:
            return "fail", "not installed", fix
        reason = problem(found, SUPPORTED[name])
        return ("warn", f"{found}: {reason}", fix) if reason else ("ok", found, "")

    return check


def check_options() -> tuple[Status, str, str]:
    """The environment variables that daceml reads."""
    from daceml.config import config

    config()
    given = sorted(name for name in os.environ if name.startswith("DACEML_"))
    return "ok", ", ".join(given) or "none is set", ""


def check_compiler() -> tuple[Status, str, str]:
    """The C++ compiler that kernels are compiled with."""
    from daceml.toolchain.cxx import toolchain

    cxx = toolchain().cxx
    done = subprocess.run([cxx, "--version"], capture_output=True, text=True, check=False)
    first = (done.stdout or done.stderr).strip().splitlines()[:1]
    if done.returncode != 0 or not first:
        found = f"{cxx} --version fails with status {done.returncode}"
        return "fail", found, "name another compiler in DACEML_CXX"
    return "ok", f"{cxx}, {first[0]}", ""


def check_cmake() -> tuple[Status, str, str]:
    """Only dace itself uses it; kernels are compiled without."""
    path = shutil.which("cmake")
    if path is None:
        beside = Path(sys.executable).with_name("cmake")
        if beside.exists():
            return "warn", f"{beside}, not in PATH", f"put {beside.parent} first in PATH"
        return "warn", "not found; only sdfg.compile() of dace needs it", "pip install cmake"
    done = subprocess.run([path, "--version"], capture_output=True, text=True, check=False)
    found = done.stdout.split()[2] if done.returncode == 0 else "no version"
    reason = problem(found, CMAKE)
    fix = f"pip install 'cmake>={CMAKE[0]}', and put its folder first in PATH"
    return (
        ("warn", f"{path}, {found}: {reason}; only sdfg.compile() of dace needs it", fix)
        if reason
        else ("ok", f"{path}, {found}", "")
    )


def check_launcher() -> tuple[Status, str, str]:
    """Compiling against torch's headers, loading the result."""
    from daceml.runtime import launcher

    launcher.native()
    return "ok", "compiled and loaded", ""


def check_openmp() -> tuple[Status, str, str]:
    """Kernels have to share torch's OpenMP runtime: two pools of threads would fight for the cores."""
    from daceml.runtime import launcher  # imports torch, which loads its runtime

    launcher.native()
    maps = Path("/proc/self/maps")
    if not maps.exists():
        return "warn", "cannot be told without /proc/self/maps", ""
    runtimes = openmp_runtimes(maps.read_text())
    if len(runtimes) > 1:
        fix = "import torch before daceml and other libraries with an OpenMP runtime of their own"
        return "warn", f"{len(runtimes)} runtimes are loaded: {', '.join(runtimes)}", fix
    return ("ok", f"one runtime, {runtimes[0]}", "") if runtimes else ("warn", "none is loaded", "")


def openmp_runtimes(maps: str) -> list[str]:
    """Paths of the OpenMP libraries in the text of /proc/self/maps."""
    paths = {line.split(maxsplit=5)[-1] for line in maps.splitlines() if len(line.split(maxsplit=5)) == 6}
    return sorted(p for p in paths if Path(p).name.startswith(("libgomp", "libomp", "libiomp")))


def check_threads() -> tuple[Status, str, str]:
    """Threads against the cores that this process may use."""
    import torch

    threads, cores = torch.get_num_threads(), len(os.sched_getaffinity(0))
    found = f"{threads} on {cores} core{'s' if cores != 1 else ''}"
    if threads > cores:
        return "warn", found, f"set OMP_NUM_THREADS={cores}, or call torch.set_num_threads({cores})"
    return "ok", found, ""


def check_cache() -> tuple[Status, str, str]:
    """The folder of compiled things: there, and writable."""
    from daceml.config import config
    from daceml.toolchain.cache_contents import CacheContents
    from daceml.toolchain.trusted_paths import check_trusted, make_private

    folder = config().cache_folder
    make_private(folder)
    check_trusted(folder)
    if not os.access(folder, os.W_OK):
        return "fail", f"{folder} cannot be written", "name another folder in DACEML_CACHE"
    size_bytes = CacheContents.of(folder).size_bytes
    free_bytes = shutil.disk_usage(folder).free
    found = f"{folder}, {size_bytes / 1e6:.1f} MB, {free_bytes / 1e9:.1f} GB free"
    if free_bytes < 1e9:
        return "warn", found, "run `daceml cache clear`, or name a folder on another disk in DACEML_CACHE"
    return "ok", found, ""


CHECKS: tuple[tuple[str, Check], ...] = (
    ("Python", check_python),
    *((name, check_package(name)) for name in SUPPORTED),
    ("options", check_options),
    ("C++ compiler", check_compiler),
    ("cmake", check_cmake),
    ("cache", check_cache),
    ("launcher", check_launcher),
    ("OpenMP", check_openmp),
    ("threads", check_threads),
    ("CUDA compiler", check_cuda_compiler),
    ("devices", check_devices),
)
