"""Inputs from a file: arrays that numpy has saved, or tensors that torch has saved."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from daceml.errors import ModelReferenceError

_FIX = "save it with numpy.savez(file, a, b) or torch.save((a, b), file); names make keyword arguments"


def load_inputs(file: Path) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Positional and keyword arguments from a `.npz` or `.pt` file; code in the file is never run.

    Raises:
        ModelReferenceError: a file that is missing, of another kind, or damaged.
    """
    if not file.is_file():
        why = "it is a folder" if file.is_dir() else "there is no such file"
        raise ModelReferenceError(f"--inputs {file} cannot be read", why=why, fix="check the path")
    if file.suffix not in (".npz", ".pt", ".pth"):
        raise ModelReferenceError(
            f"--inputs {file} is of an unknown kind", why="the name has to end in .npz or .pt", fix=_FIX
        )
    try:
        return _arrays(file) if file.suffix == ".npz" else _saved_tensors(file)
    except ModelReferenceError:
        raise
    except Exception as error:  # zipfile, pickle, numpy and torch each raise their own
        reason = str(error).strip().splitlines()[:1]
        why = f"it is damaged, or holds more than arrays and tensors ({type(error).__name__}"
        why += f": {reason[0]})" if reason else ")"
        raise ModelReferenceError(f"--inputs {file} cannot be read", why=why, fix=_FIX) from error


def _arrays(file: Path) -> tuple[tuple[Any, ...], dict[str, Any]]:
    import numpy as np
    import torch

    with file.open("rb") as stream, np.load(stream, allow_pickle=False) as arrays:
        tensors = {name: torch.from_numpy(np.ascontiguousarray(arrays[name])) for name in arrays.files}
        shapes = {name: arrays[name].shape for name in arrays.files}
    # ascontiguousarray makes a scalar a vector
    tensors = {name: tensor.reshape(shapes[name]) for name, tensor in tensors.items()}
    positional = [f"arr_{i}" for i in range(len(tensors)) if f"arr_{i}" in tensors]
    return (
        tuple(tensors[name] for name in positional),
        {name: tensor for name, tensor in tensors.items() if name not in positional},
    )


def _saved_tensors(file: Path) -> tuple[tuple[Any, ...], dict[str, Any]]:
    import torch

    saved: Any = torch.load(file, map_location="cpu", weights_only=True)
    if isinstance(saved, Mapping):
        named = cast("Mapping[Any, Any]", saved)
        if not all(isinstance(name, str) for name in named):
            raise ModelReferenceError(
                f"--inputs {file} holds a dictionary whose keys are not all text",
                why="keys are the names of keyword arguments",
                fix=_FIX,
            )
        return (), dict(named)
    if isinstance(saved, list | tuple):
        return tuple(cast("list[Any]", saved)), {}
    if isinstance(saved, torch.Tensor):
        return (saved,), {}
    raise ModelReferenceError(
        f"--inputs {file} holds a {type(saved).__name__}",
        why="inputs are a tensor, a tuple or list of them, or a dictionary with their names",
        fix=_FIX,
    )
