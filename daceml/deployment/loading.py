"""`daceml.load`: an exported model as a module, once every byte of it is what was exported."""

from __future__ import annotations

import ctypes
import os
import platform
import tempfile
import weakref
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from daceml.deployment.interface import Tensor, interface_text
from daceml.deployment.manifest import ModelManifest
from daceml.errors import BundleError, CallError, DeploymentError, OutOfMemoryError, PositionError, first_line
from daceml.runtime.memory_errors import memory_error
from daceml.toolchain.trusted_paths import private_folder

_MESSAGE_BYTES = 1024
_FUNCTIONS = ("run", "output_sizes", "interface", "load", "free")


def load(folder: str | Path, *, sha256: str | None = None) -> LoadedModel:
    """An exported model, as a module that takes the same calls.

    Every file is checked before any of it is used.

    Args:
        folder: that `daceml.export` wrote.
        sha256: of its manifest, as `daceml.export` told it: then nobody can have changed anything. Without
            it, whoever changes a file and the manifest is not noticed.
    Raises:
        BundleError: a file is missing or has other bytes, or this machine cannot run it.
    """
    place = Path(folder).expanduser()
    manifest = ModelManifest.read(place, sha256=sha256)
    return LoadedModel(place, manifest, manifest.check_files(place))


class LoadedModel(nn.Module):
    """An exported model. Calls are for inference: results have no gradients. Threads may share it.

    It holds memory of a library and is no data: it can be neither copied nor pickled.

    Args:
        library: the bytes of the library that were checked.
    Attributes:
        manifest: its interface, and what it was made with.
    """

    def __init__(self, folder: Path, manifest: ModelManifest, library: bytes) -> None:
        super().__init__()
        self.manifest, name = manifest, manifest.name
        if manifest.libtorch and manifest.libraries.get("torch") != version("torch"):
            raise BundleError(
                f"{folder} calls functions of torch {manifest.libraries.get('torch')}",
                why=f"this is torch {torch.__version__}",
                fix="export it again with this torch, or without libtorch",
            )
        self._call, self._result = (_structure(folder, manifest, part) for part in ("call", "result"))
        functions = _functions(library, folder / f"lib{name}.so", name)
        self._run, self._output_sizes, interface, begin, end = functions
        _check_interface(folder, manifest, interface)
        begin.restype, end.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
        error = ctypes.create_string_buffer(_MESSAGE_BYTES)
        handle = begin(os.fsencode(folder / "weights.bin"), error, ctypes.c_int64(_MESSAGE_BYTES))
        if not handle:
            raise BundleError(
                f"{folder} cannot be loaded",
                why=error.value.decode(),
                fix="export the model again, on this machine",
            )
        self._model = ctypes.c_void_p(handle)
        # not at the end of the process: other functions that run then may call the model
        weakref.finalize(self, end, handle).atexit = False

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise DeploymentError(
            f"a loaded {self.manifest.model} cannot be copied or pickled",
            why="its weights and its code lie in memory of a library",
            fix="share it (threads may), or call daceml.load again, in each process",
        )

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """See the exported module.

        Raises:
            CallError: other arguments than those it was exported for.
            OutOfMemoryError: there is not enough memory.
            PositionError: an index is past the ends of a dimension.
        """
        leaves, structure = pytree.tree_flatten(_ordered((args, kwargs), self._call))
        if structure != self._call:
            raise CallError(
                f"{self.manifest.model} was exported for another call",
                why=f"it got {_told(structure)}, and was exported with {_told(self._call)}",
                fix="pass as many arguments, by position or by name as then, nested in the same way",
            )
        tensors: list[torch.Tensor] = []
        for place, (leaf, wanted) in enumerate(zip(leaves, self.manifest.leaves["call"], strict=True)):
            if isinstance(wanted, int):
                tensors.append(_checked(leaf, self.manifest.inputs[wanted]))
            elif type(leaf) is not type(wanted["value"]) or leaf != wanted["value"]:
                raise CallError(
                    f"argument {place} is {leaf!r}",
                    why=f"the model was exported for {wanted['value']!r}",
                    fix="export it again for this value",
                )
        outputs = self._outputs(tensors)
        made = [
            outputs[leaf] if isinstance(leaf, int) else leaf["value"]
            for leaf in self.manifest.leaves["result"]
        ]
        return pytree.tree_unflatten(made, self._result)

    def _outputs(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        extents = [(ctypes.c_int64 * max(t.dim(), 1))(*t.shape) for t in tensors]
        sizes = (ctypes.c_void_p * max(len(tensors), 1))(*map(ctypes.addressof, extents))
        ranks = [len(record.shape) for record in self.manifest.outputs]
        found = (ctypes.c_int64 * max(sum(ranks), 1))()
        self._called(self._output_sizes, sizes, found)
        outputs: list[torch.Tensor] = []
        numbers = iter(found)
        for record, rank in zip(self.manifest.outputs, ranks, strict=True):
            shape = [next(numbers) for _ in range(rank)]
            outputs.append(self._empty(shape, getattr(torch, record.dtype)))
        given, made = (
            (ctypes.c_void_p * max(len(several), 1))(*(t.data_ptr() for t in several))
            for several in (tensors, outputs)
        )
        self._called(self._run, given, sizes, made)
        return outputs

    def _empty(self, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        try:
            return torch.empty(shape, dtype=dtype)
        except RuntimeError as error:
            if (short := self._short_of_memory(first_line(error))) is not None:
                raise short from error
            raise

    def _short_of_memory(self, why: str) -> OutOfMemoryError | None:
        what = f"there is not enough memory for a call of {self.manifest.model}"
        return memory_error(why, what=what, where=self.manifest.name, device=torch.device("cpu"))

    def _called(self, function: Any, *arguments: Any) -> None:
        error = ctypes.create_string_buffer(_MESSAGE_BYTES)
        if function(self._model, *arguments, error, ctypes.c_int64(_MESSAGE_BYTES)):
            why = error.value.decode(errors="replace")
            if (short := self._short_of_memory(why)) is not None:
                raise short
            what = f"{self.manifest.model} refused a call"
            if why.startswith(PositionError.reason):
                raise PositionError(what, why=why, fix=PositionError.advice)
            raise CallError(what, why=why, fix="pass inputs of the sizes that it was exported for")


def _checked(leaf: Any, record: Tensor) -> torch.Tensor:
    """In row-major order, on the processor, of the right type and rank."""
    if not isinstance(leaf, torch.Tensor):
        raise CallError(f"{record.name} is a {type(leaf).__name__}", fix="pass a tensor")
    if leaf.requires_grad and torch.is_grad_enabled():
        raise CallError(
            f"{record.name} requires a gradient",
            why="an exported model computes none",
            fix="call it under torch.no_grad(), or pass x.detach()",
        )
    wanted = getattr(torch, record.dtype)
    if leaf.layout != torch.strided:
        raise CallError(f"{record.name} is {leaf.layout}", fix="pass a dense tensor, x.to_dense()")
    if leaf.dtype != wanted or leaf.device.type != "cpu" or leaf.dim() != len(record.shape):
        raise CallError(
            f"{record.name} is {leaf.dtype} of {leaf.dim()} dimensions on {leaf.device}",
            why=f"the model was exported for {wanted} of {len(record.shape)} dimensions on cpu",
            fix="convert it, or export the model for such tensors",
        )
    if leaf.numel() > 0 and _reached_bytes(leaf) > leaf.untyped_storage().nbytes():
        raise CallError(
            f"{record.name} reaches beyond its memory",
            why=f"its storage has {leaf.untyped_storage().nbytes()} bytes, and its sizes need "
            f"{_reached_bytes(leaf)}",
            fix="pass it before its storage is freed or resized",
        )
    return leaf.detach().resolve_conj().resolve_neg().contiguous()


def _reached_bytes(tensor: torch.Tensor) -> int:
    """From the beginning of its storage to the end of its last element."""
    last = sum((n - 1) * step for n, step in zip(tensor.shape, tensor.stride(), strict=True))
    return int(tensor.storage_offset() + last + 1) * tensor.element_size()


def _told(call: pytree.TreeSpec) -> str:
    """Arguments of a call by position and by name, for a reader."""
    given, named = call.children()
    parts = [f"{given.num_children} argument{'' if given.num_children == 1 else 's'} by position"]
    if named.num_children:
        parts.append("by name " + ", ".join(map(str, named.context)))
    nested = [one for one in (*given.children(), *named.children()) if not one.is_leaf()]
    if nested:
        parts.append("nested as " + "; ".join(str(one) for one in nested))
    return ", ".join(parts)


def _ordered(given: Any, wanted: pytree.TreeSpec) -> Any:
    """The same arguments with the keys of dictionaries in the order of the call that was exported."""
    if wanted.is_leaf() or type(given) is not wanted.type:
        return given
    children = [wanted.child(place) for place in range(wanted.num_children)]
    if wanted.type is dict and set(given) == set(wanted.context):
        return {key: _ordered(given[key], child) for key, child in zip(wanted.context, children, strict=True)}
    if wanted.type in (list, tuple) and len(given) == len(children):
        return wanted.type(map(_ordered, given, children))
    return given


def _structure(folder: Path, manifest: ModelManifest, part: str) -> pytree.TreeSpec:
    """How arguments or results are nested."""
    try:
        found = pytree.treespec_loads(manifest.structures[part])
        why = f"{part} has {found.num_leaves} leaves, and the manifest has {len(manifest.leaves[part])}"
        if found.num_leaves == len(manifest.leaves[part]):
            return found
    except Exception as error:  # torch has no error of its own for a text that is no structure
        why = f"{type(error).__name__}: {error}"
    raise BundleError(
        f"the manifest of {folder} does not say how its {part} is nested",
        why=why,
        fix="export the model again",
    )


def _check_interface(folder: Path, manifest: ModelManifest, interface: Any) -> None:
    """Refuse a manifest that has another interface than the library, which would write past its results."""
    interface.restype = ctypes.c_char_p
    has, told = interface().decode(), interface_text(manifest.inputs, manifest.outputs)
    if has != told:
        raise BundleError(
            f"the manifest of {folder} does not fit its library",
            why=f"it says {told}, and the library takes and gives {has}",
            fix="export the model again",
        )


def _functions(library: bytes, path: Path, name: str) -> list[Any]:
    """The functions of a library: `_FUNCTIONS`.

    They are those of the bytes that were checked: a file could change between being hashed and being opened,
    and the loader gives a library that it has seen under the same path, although the file is another one now.
    So a copy is opened that nobody else can write to, under a name of its own; it goes when it is mapped.
    """
    try:
        with private_folder() as private:
            copy = private / path.name
            copy.write_bytes(library)
            opened = ctypes.CDLL(str(copy))
        return [getattr(opened, f"{name}_{function}") for function in _FUNCTIONS]
    except (OSError, AttributeError) as error:
        raise BundleError(
            f"{path.name} cannot be loaded on this machine ({platform.machine()})",
            why=str(error),
            fix="export the model on a machine of this kind; its manifest names the libraries it needs. The "
            f"library is opened in {tempfile.gettempdir()}: set TMPDIR where nothing can be run from there",
        ) from error
