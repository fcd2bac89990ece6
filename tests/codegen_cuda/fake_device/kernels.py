"""Kernels of tests: compiled by the compiler that daceml calls, and launched through ctypes."""

from __future__ import annotations

import ctypes
import subprocess
import tempfile
from functools import lru_cache
from pathlib import Path

import torch

from daceml.codegen_cuda.toolchain import cuda_toolchain
from daceml.toolchain.cxx import include_folder


@lru_cache(maxsize=32)
def compiled(text: str) -> ctypes.CDLL:
    """A library of kernels and of functions that launch them.

    Args:
        text: kernels, and for each launch `extern "C" int NAME(void* stream, …)`.
    """
    folder = Path(tempfile.mkdtemp(prefix="daceml-fake-device-"))
    headers = "".join(f"#include <daceml/{name}.h>\n" for name in ("device", "collectives", "vectors"))
    tools = cuda_toolchain()
    tools.compile(headers + text, folder, includes=(include_folder(),))
    library = folder / "kernel.so"
    subprocess.run(["g++", "-shared", str(folder / "kernel.o"), "-o", str(library)], check=True)
    return ctypes.CDLL(str(library))


def launch(text: str, name: str, *arguments: torch.Tensor | int, stream: int | None = None) -> int:
    """CUDA's code of a launch.

    Args:
        arguments: addresses of tensors, and numbers of 64 bits.
        stream: torch's current one unless another is given.
    """
    if stream is None:
        stream = torch.cuda.current_stream().cuda_stream
    given = [
        ctypes.c_void_p(one.data_ptr()) if isinstance(one, torch.Tensor) else ctypes.c_int64(one)
        for one in arguments
    ]
    return int(getattr(compiled(text), name)(ctypes.c_void_p(stream), *given))
