"""What `daceml doctor` looks at for devices: the CUDA compiler, and the devices themselves."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

from daceml.errors import BuildError, EnvironmentProblem

if TYPE_CHECKING:
    from daceml.cli.finding import Status

_TRIAL = """\
#include <daceml/device.h>
__global__ void trial(float* x) { x[threadIdx.x] = daceml::highest<float>(); }
"""


def check_cuda_compiler() -> tuple[Status, str, str]:
    """nvcc, tried on a kernel; only a machine with a device is broken without one."""
    from daceml.codegen_cuda.toolchain import INSTALL, locate_nvcc
    from daceml.config import config

    broken: Status = "warn" if cuda_driver() is None else "fail"
    found = locate_nvcc()
    if found is None:
        named = config().nvcc
        if named:
            return "fail", f"{named} is not there, or is no program", "name another nvcc in DACEML_NVCC"
        if broken == "warn":
            return "ok", "none; no device is here that would need one", ""
        return broken, "none: kernels for the device here cannot be compiled", INSTALL
    nvcc, place = found
    try:
        said = _tried()
    except (BuildError, EnvironmentProblem) as error:
        return broken, f"{nvcc} (from {place}): {error.what}: {error.why}".rstrip(": "), error.fix
    return "ok", f"{nvcc} (from {place}), {said}", ""


def _tried() -> str:
    """What the compiler is and makes.

    Raises:
        BuildError, EnvironmentProblem: it cannot be used.
    """
    from daceml.codegen_cuda.cuda_files import HEADERS, header_folders
    from daceml.codegen_cuda.toolchain import chosen_architecture, cuda_toolchain
    from daceml.toolchain.cxx import include_folder
    from daceml.toolchain.trusted_paths import private_folder

    tools = cuda_toolchain()
    with private_folder("daceml-doctor-") as folder:
        tools.compile(_TRIAL, folder, includes=(include_folder(),))
    release = ".".join(map(str, tools.release))
    said = f"CUDA {release}, for compute capability {tools.architecture / 10:.1f}"
    said += f" ({chosen_architecture()[1]}), runtime {tools.cudart}"
    where = header_folders(tools.nvcc, tools.release[0])
    absent = [HEADERS[header] for header, folder in where.items() if folder is None]
    return said + (f", without headers of {' and '.join(absent)}" if absent else "")


def check_devices() -> tuple[Status, str, str]:
    """The devices that torch can use."""
    import torch

    from daceml.codegen_cuda.toolchain import OLDEST_ARCHITECTURE

    driver, of_torch = cuda_driver(), torch.version.cuda
    if driver is None:
        return "ok", "none: " + ("torch is built for the CPU" if of_torch is None else "no CUDA driver"), ""
    known = f"driver for CUDA {driver[0]}.{driver[1]}"
    if of_torch is None:
        fix = "install a CUDA build of torch: https://pytorch.org/get-started/locally"
        return "warn", f"none: torch is built for the CPU, but there is a {known}", fix
    if not torch.cuda.is_available():
        fix = "run nvidia-smi; if it shows the device, install a driver that is new enough for torch"
        return "warn", f"none: torch, built for CUDA {of_torch}, finds no device; {known}", fix
    devices = [
        (torch.cuda.get_device_name(one), torch.cuda.get_device_capability(one))
        for one in range(torch.cuda.device_count())
    ]
    found = ", ".join(f"{name} ({major}.{minor})" for name, (major, minor) in devices)
    oldest = min(10 * major + minor for _, (major, minor) in devices)
    if oldest < OLDEST_ARCHITECTURE:
        fix = "hide it: name the other devices in CUDA_VISIBLE_DEVICES"
        return "warn", f"{found}, {known}; daceml supports 7.0 and newer", fix
    return "ok", f"{found}, {known}", ""


def cuda_driver() -> tuple[int, int] | None:
    """The newest CUDA that the driver of this machine supports; None where there is no driver."""
    try:
        library = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    number = ctypes.c_int(0)
    if library.cuDriverGetVersion(ctypes.byref(number)) != 0 or number.value == 0:
        return None
    # as CUDA_VERSION: 13000 for 13.0
    return number.value // 1000, number.value % 1000 // 10
