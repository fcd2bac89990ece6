"""Puts the stand-ins for torch's CUDA operators in place; called once, after torch is imported."""

from __future__ import annotations

import atexit
import ctypes
import os
import warnings
from pathlib import Path

import torch

from tests.codegen_cuda.fake_device.copies import copy_
from tests.codegen_cuda.fake_device.libraries import build_torch_calls
from tests.codegen_cuda.fake_device.operators import HOST_ALONE, stand_in_of
from tests.codegen_cuda.fake_device.redirect import redirected, refused
from tests.codegen_cuda.fake_device.streams import end

FOLDER = (
    "FAKE_DEVICE"  # names the folder of the libraries, in the environment of a process with the fake device
)
_library: torch.library.Library | None = None


def installed() -> bool:
    """Whether this process has the fake device."""
    return _library is not None


def install() -> None:
    """Give every operator that has a kernel for CUDA a stand-in, or a refusal with its name."""
    global _library
    ctypes.CDLL(str(build_torch_calls(Path(os.environ[FOLDER]))), mode=ctypes.RTLD_GLOBAL)
    atexit.register(end)
    _library = torch.library.Library("aten", "IMPL")
    for full in torch._C._dispatch_get_registrations_for_dispatch_key("CUDA"):
        space, _, name = full.partition("::")
        if space == "aten":
            _put(_library, name)
    for name in ("convolution", "convolution_backward", "copy_"):  # which have one kernel for all devices
        _put(_library, name)


def _put(library: torch.library.Library, full: str) -> None:
    name, _, overload = full.partition(".")
    if name in HOST_ALONE:
        return
    operator = getattr(getattr(torch.ops.aten, name), overload or "default")
    stand_in = stand_in_of(name)
    kernel = refused(operator) if stand_in is None else redirected(operator, stand_in)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch says of each that it replaces another
        library.impl(full, copy_ if name == "copy_" else kernel, "CUDA", allow_override=True)
