"""Where operations were measured: the device, what tells one such device from another, and versions."""

from __future__ import annotations

import os
import platform
from typing import Any

import torch

from daceml.operations.database.records import Environment
from daceml.toolchain.processor import cpu_model

# They decide whether every large result costs fresh pages.
_ALLOCATOR = ("MALLOC_MMAP_MAX_", "MALLOC_TRIM_THRESHOLD_", "MALLOC_TOP_PAD_", "LD_PRELOAD")


def environment(device: str = "cpu", cuda: Any = None) -> Environment:
    """Of this process, on one device.

    Args:
        cuda: the module `torch.cuda`, or what stands in for it.
    """
    software = {"torch": str(torch.__version__), "python": platform.python_version()}
    if not device.startswith("cuda"):
        own = sorted(f"{name}={os.environ[name]}" for name in _ALLOCATOR if os.environ.get(name))
        pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        words = [
            f"threads={torch.get_num_threads()}",
            f"cores={len(os.sched_getaffinity(0))}",
            f"memory={pages}",
            f"instructions={torch.backends.cpu.get_cpu_capability()}",
            *own,
        ]
        return Environment(device=cpu_model(), fingerprint=" ".join(words), software=software)
    cuda = cuda or torch.cuda
    found = cuda.get_device_properties(device)
    words = [
        f"capability={found.major}.{found.minor}",
        f"memory={found.total_memory}",
        f"multiprocessors={found.multi_processor_count}",
    ]
    software |= {"cuda": str(torch.version.cuda), "cudnn": str(torch.backends.cudnn.version())}
    return Environment(device=found.name, fingerprint=" ".join(words), software=software)
