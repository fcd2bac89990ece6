"""`daceml.load`: an exported model as a module, once every byte of it is what was exported."""

from __future__ import annotations

import ctypes
import platform
import weakref
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from daceml.deployment.manifest import ModelManifest, Tensor
from daceml.errors import BundleError, CallError

_MESSAGE_BYTES = 1024


def load(folder: str | Path, *, sha256: str = "") -> LoadedModel:
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
    return LoadedModel(place, ModelManifest.read(place, sha256=sha256))


class LoadedModel(nn.Module):
    """An exported model. Calls are for inference: results have no gradients. Threads may share it.

    Attributes:
        manifest: its interface, and what it was made with.
    """

    def __init__(self, folder: Path, manifest: ModelManifest) -> None:
        super().__init__()
        self.manifest, name = manifest, manifest.name
        if manifest.libtorch and manifest.libraries.get("torch") != version("torch"):
            raise BundleError(
                f"{folder} calls functions of torch {manifest.libraries.get('torch')}",
                why=f"this is torch {torch.__version__}",
                fix="export it again with this torch, or without libtorch",
            )
        library = _library(folder / f"lib{name}.so")
        self._run = getattr(library, f"{name}_run")
        self._output_sizes = getattr(library, f"{name}_output_sizes")
        begin, end = getattr(library, f"{name}_load"), getattr(library, f"{name}_free")
        begin.restype, end.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
        error = ctypes.create_string_buffer(_MESSAGE_BYTES)
        handle = begin(str(folder / "weights.bin").encode(), error, ctypes.c_int64(_MESSAGE_BYTES))
        if not handle:
            raise BundleError(
                f"{folder} cannot be loaded",
                why=error.value.decode(),
                fix="export the model again, on this machine",
            )
        self._model = ctypes.c_void_p(handle)
        weakref.finalize(self, end, handle)
        self._call, self._result = (
            pytree.treespec_loads(manifest.structures[part]) for part in ("call", "result")
        )

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """See the exported module.

        Raises:
            CallError: other arguments than those it was exported for.
        """
        leaves, structure = pytree.tree_flatten((args, kwargs))
        if structure != self._call:
            raise CallError(
                f"{self.manifest.model} was exported for another call",
                why=f"arguments are nested as {structure}, and were as {self._call}",
                fix="pass as many arguments, by position or by name as then",
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
            outputs.append(torch.empty(shape, dtype=getattr(torch, record.dtype)))
        given, made = (
            (ctypes.c_void_p * max(len(several), 1))(*(t.data_ptr() for t in several))
            for several in (tensors, outputs)
        )
        self._called(self._run, given, sizes, made)
        return outputs

    def _called(self, function: Any, *arguments: Any) -> None:
        error = ctypes.create_string_buffer(_MESSAGE_BYTES)
        if function(self._model, *arguments, error, ctypes.c_int64(_MESSAGE_BYTES)):
            raise CallError(
                f"{self.manifest.model} refused a call",
                why=error.value.decode(),
                fix="pass inputs of the sizes that it was exported for",
            )


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
    if leaf.dtype != wanted or leaf.device.type != "cpu" or leaf.dim() != len(record.shape):
        raise CallError(
            f"{record.name} is {leaf.dtype} of {leaf.dim()} dimensions on {leaf.device}",
            why=f"the model was exported for {wanted} of {len(record.shape)} dimensions on cpu",
            fix="convert it, or export the model for such tensors",
        )
    return leaf.detach().resolve_conj().resolve_neg().contiguous()


def _library(path: Path) -> ctypes.CDLL:
    try:
        return ctypes.CDLL(str(path.resolve()))
    except OSError as error:
        raise BundleError(
            f"{path.name} cannot be loaded on this machine ({platform.machine()})",
            why=str(error),
            fix="export the model on a machine of this kind; its manifest names the libraries it needs",
        ) from error
