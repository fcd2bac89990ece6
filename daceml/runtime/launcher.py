"""The native launcher: loads compiled programs and registers torch's operators `daceml::bind`, `call` and
`call_into`."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

from daceml.config import config
from daceml.runtime.random_stream import share_generator
from daceml.runtime.torch_fallback import torch_operator
from daceml.toolchain.cache import Cache, digest
from daceml.toolchain.cxx import precompiled_header, toolchain, torch_header

# daceml_fallback in program.h
FallbackFunction = ctypes.CFUNCTYPE(
    ctypes.c_int32, ctypes.c_int64, ctypes.POINTER(ctypes.c_void_p), ctypes.c_void_p
)

# daceml_all_reduce in program.h
AllReduceFunction = ctypes.CFUNCTYPE(
    ctypes.c_int64,
    ctypes.c_int32,
    ctypes.c_int64,
    ctypes.c_void_p,
    ctypes.c_void_p,
    ctypes.c_int64,
    ctypes.c_int32,
)

_CALLING = tuple(
    map(Path(__file__).with_name, ("launcher.cpp", "watch.cpp", "call_watch.cpp", "call_log.cpp"))
)
_LOOPING = tuple(map(Path(__file__).with_name, ("random_stream.cpp", "fingerprint.cpp")))
_loading = threading.Lock()
# What the fake implementation needs to know of a bound program: number -> (inputs -> outputs of the right
# shape).
_shapes: dict[int, Any] = {}
# Where the code of each bound program lies.
_folders: dict[int, Path] = {}


def build_launcher(cache: Cache) -> Path:
    """`launcher.so`, built once for each toolchain and torch version."""

    def build(folder: Path) -> None:
        toolchain().build_launcher(_CALLING, _LOOPING, folder, torch_header(cache))

    return cache.get("launchers", _launcher_key(), build) / "launcher.so"


def is_built(cache: Cache) -> bool:
    """Whether `build_launcher` finds the library without compiling it."""
    return cache.holds("launchers", _launcher_key())


def _launcher_key() -> str:
    sources = (source.read_text() for source in (*_CALLING, *_LOOPING))
    # the toolchain's fingerprint covers the headers
    return digest(toolchain().fingerprint, *sources, torch.__version__)


def make_ready(cache: Cache) -> None:
    """Make what every program needs and a cache lacks: the precompiled header and the launcher."""
    # one after the other: on two cores, Python keeps one
    if not cache.holds("headers", toolchain().fingerprint):
        precompiled_header(cache)
    if not is_built(cache):
        build_launcher(cache)


@lru_cache(maxsize=1)
def _load() -> ctypes.CDLL:
    library = build_launcher(Cache(config().cache_folder))
    torch.ops.load_library(str(library))
    torch.library.register_fake("daceml::call")(_fake_call)
    torch.library.register_fake("daceml::call_into")(lambda inputs, written, program: None)
    native = ctypes.CDLL(str(library))
    native.daceml_set_fallback.argtypes = [ctypes.c_int64, FallbackFunction]
    native.daceml_set_all_reduce.argtypes = [ctypes.c_int64, AllReduceFunction]
    native.daceml_set_all_reduce.restype = None
    native.daceml_release.argtypes = [ctypes.c_int64]
    native.daceml_release.restype = None
    native.daceml_weight_addresses.argtypes = [ctypes.c_int64]
    native.daceml_weight_addresses.restype = ctypes.c_uint64
    native.daceml_set_profile.argtypes = [ctypes.c_int64, ctypes.POINTER(ctypes.c_double)]
    native.daceml_fingerprint.argtypes = [
        ctypes.POINTER(ctypes.c_void_p),
        ctypes.POINTER(ctypes.c_int64),
        ctypes.c_int64,
    ]
    native.daceml_fingerprint.restype = ctypes.c_uint64
    native.daceml_call_log_stop.argtypes = [ctypes.POINTER(ctypes.c_int64)]
    native.daceml_call_log_stop.restype = ctypes.c_int64
    native.daceml_call_log_take.argtypes = [
        ctypes.c_int64,
        ctypes.POINTER(ctypes.c_int64),
        ctypes.POINTER(ctypes.c_double),
    ]
    share_generator(native)
    torch_operator()  # registers what drivers call
    return native


def native() -> ctypes.CDLL:
    """The launcher's library; built once for each machine and torch version."""
    with _loading:
        return _load()


def bind(weights: Sequence[torch.Tensor], library: Path, fake_outputs: Any) -> int:
    """Load a program and share its weights with it.

    Args:
        weights: in the plan's order; their memory is read at every call, also after `parameter.data = …`.
        library: `program.so`.
        fake_outputs: inputs -> empty outputs, for FakeTensor tracing.
    Returns:
        the number by which `daceml::call` knows the program.
    """
    native()
    number: int = torch.ops.daceml.bind(list(weights), str(library))
    _shapes[number] = fake_outputs
    _folders[number] = library.parent
    return number


def release(number: int) -> None:
    """Forget a bound program; calls in flight finish. For finalizers: takes no lock of Python's."""
    _shapes.pop(number, None)
    _folders.pop(number, None)
    _load().daceml_release(number)


def folders() -> dict[int, Path]:
    """Number -> folder of every program that is bound now."""
    return dict(_folders)


def weight_addresses(number: int) -> int:
    """A number that changes when a weight of a bound program moves."""
    return int(native().daceml_weight_addresses(number))


def fingerprint(tensors: Sequence[torch.Tensor]) -> int:
    """A number of 64 bits that differs where any byte of the tensors' memory does.

    Args:
        tensors: on the CPU; of strided ones, everything between first and last element counts.
    """
    count = len(tensors)
    addresses = (ctypes.c_void_p * count)(*(t.data_ptr() for t in tensors))
    sizes = (ctypes.c_int64 * count)(*map(_spanned_bytes, tensors))
    return int(native().daceml_fingerprint(addresses, sizes, count))


def _spanned_bytes(tensor: torch.Tensor) -> int:
    if tensor.numel() == 0:
        return 0
    last = sum((n - 1) * step for n, step in zip(tensor.shape, tensor.stride(), strict=True))
    return (last + 1) * tensor.element_size()


def set_fallback(number: int, function: Any) -> None:
    """Let `function` run the steps that generated code hands to ONNX Runtime; the caller keeps it alive."""
    native().daceml_set_fallback(number, function)


def set_all_reduce(number: int, function: Any) -> None:
    """Let `function` run the all-reduces of a program; the caller keeps it alive."""
    native().daceml_set_all_reduce(number, function)


def set_profile(number: int, step_us: ctypes.Array[ctypes.c_double] | None) -> None:
    """Add the time of every step to `step_us` from now on, or stop doing so."""
    pointer = ctypes.POINTER(ctypes.c_double)
    native().daceml_set_profile(number, ctypes.cast(step_us, pointer) if step_us is not None else pointer())


def _fake_call(inputs: Sequence[torch.Tensor], program: int) -> list[torch.Tensor]:
    return _shapes[program](inputs)
