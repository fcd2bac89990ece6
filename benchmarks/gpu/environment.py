"""What a number of a device was measured on."""

from __future__ import annotations

import re
from typing import Any

import torch

from benchmarks.machine import first_line, installed_version
from daceml.codegen_cuda.toolchain import cuda_toolchain
from daceml.errors import EnvironmentProblem

# Fields of nvidia-smi, and the names under which they are kept.
_READ = {
    "driver_version": "driver",
    "clocks.sm": "sm_clock_mhz",
    "clocks.mem": "memory_clock_mhz",
    "clocks.max.sm": "sm_clock_limit_mhz",
    "power.limit": "power_limit_w",
    "temperature.gpu": "temperature_c",
}


def description() -> dict[str, Any]:
    """Device, driver, versions, and clocks where they can be read; `gpu` is None without a device."""
    found: dict[str, Any] = {
        "gpu": None,
        "torch": str(torch.__version__),
        "cuda": torch.version.cuda,
        "triton": installed_version("triton"),
        "nvcc": nvcc_release(),
    }
    if not torch.cuda.is_available():
        return found
    properties: Any = torch.cuda.get_device_properties(0)
    return {
        **found,
        "gpu": properties.name,
        "capability": f"{properties.major}.{properties.minor}",
        "multiprocessors": properties.multi_processor_count,
        "memory_bytes": properties.total_memory,
        "last_cache_bytes": getattr(properties, "L2_cache_size", None),
        "cudnn": torch.backends.cudnn.version(),
        **readings(),
    }


def readings() -> dict[str, Any]:
    """Driver, clocks, power and temperature as nvidia-smi reads them; without it the driver alone."""
    line = first_line(["nvidia-smi", f"--query-gpu={','.join(_READ)}", "--format=csv,noheader,nounits"])
    values = [] if line is None else [value.strip() for value in line.split(",")]
    if len(values) == len(_READ):
        return dict(zip(_READ.values(), values, strict=True))
    module = first_line(["cat", "/proc/driver/nvidia/version"]) or ""
    release = re.search(r"\b\d{3}\.\d+(?:\.\d+)?\b", module)
    return {} if release is None else {"driver": release[0]}


def nvcc_release() -> str | None:
    """As `13.0`, of the compiler that kernels are made with; None where there is none."""
    try:
        return ".".join(map(str, cuda_toolchain().release))
    except EnvironmentProblem:
        return None


def folder_name(gpu: str | None) -> str:
    """The name of a device as that of a folder: `NVIDIA A100-SXM4-40GB` is `nvidia-a100-sxm4-40gb`."""
    return re.sub(r"[^a-z0-9]+", "-", (gpu or "no gpu").lower()).strip("-")
