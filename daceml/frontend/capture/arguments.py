"""The arguments of a call as leaves with names, and back."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch.utils import _pytree as pytree

from daceml.errors import CallError
from daceml.frontend.capture.object_arguments import (
    closed,
    has_objects,
    kinds_of_objects,
    opened,
    size_of_number,
)
from daceml.frontend.capture.redirected_forward import forward_signature

_DESCRIBED = 8


@dataclass(frozen=True)
class Arguments:
    """What a module was called with.

    Attributes:
        args, kwargs: as the user passed them.
        counting: leaves that are numbers and stand among the tensors, see `size_of_number`.
    """

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    counting: frozenset[int] = frozenset()

    @cached_property
    def _flat(self) -> tuple[list[tuple[Any, Any]], pytree.TreeSpec]:
        tree = self.args, self.kwargs
        leaves, structure = pytree.tree_flatten_with_path(opened(tree, pytree.tree_leaves(tree)))
        values = with_sizes([leaf for _, leaf in leaves], self.counting)
        return [(path, value) for (path, _), value in zip(leaves, values, strict=True)], structure

    @property
    def classes(self) -> tuple[type, ...]:
        """Those of objects among the arguments."""
        return tuple(dict.fromkeys(kinds_of_objects(self._flat[1])))

    @property
    def leaves(self) -> list[Any]:
        """Every leaf, in order."""
        return [leaf for _, leaf in self._flat[0]]

    @property
    def paths(self) -> list[tuple[Any, ...]]:
        """Where each leaf stands: args or kwargs, position or name, and so on inwards."""
        return [tuple(map(_key, path)) for path, _ in self._flat[0]]

    @property
    def _key_paths(self) -> list[tuple[Any, ...]]:
        return [path for path, _ in self._flat[0]]

    @property
    def tensors(self) -> list[torch.Tensor]:
        """The leaves that are tensors, in order."""
        return [leaf for leaf in self.leaves if isinstance(leaf, torch.Tensor)]

    def names(self, forward: Callable[..., Any]) -> list[str]:
        """A different name for every tensor, such as `x` or `batch_mask`: parameter and place in it."""
        names: list[str] = []
        for path, leaf in zip(self.paths, self.leaves, strict=True):
            if isinstance(leaf, torch.Tensor):
                place = (self.parameter(forward, path), *path[2:])
                name = re.sub(r"\W", "_", "_".join(map(str, place)))
                name = name if name.isidentifier() else f"arg_{name}"
                while name in names:
                    name += "_"
                names.append(name)
        return names

    def spellings(self, forward: Callable[..., Any]) -> list[str]:
        """How the user writes every tensor within forward, such as `x` or `batch['mask']`."""
        return [
            self.parameter(forward, path) + "".join(_access(entry) for entry in keys[2:])
            for path, keys, leaf in zip(self.paths, self._key_paths, self.leaves, strict=True)
            if isinstance(leaf, torch.Tensor)
        ]

    def describe(self, forward: Callable[..., Any]) -> str:
        """The tensors in words: `x: float32 (2, 3), batch['mask']: bool (2,)`; at most a few."""
        texts = [
            f"{name}: {str(tensor.dtype).removeprefix('torch.')} {tuple(tensor.shape)}"
            for name, tensor in zip(self.spellings(forward), self.tensors, strict=True)
        ]
        rest = len(texts) - _DESCRIBED
        return ", ".join(texts[:_DESCRIBED]) + (f" and {rest} more" if rest > 0 else "")

    @staticmethod
    def parameter(forward: Callable[..., Any], path: Sequence[Any]) -> str:
        """The name of the parameter of `forward` that a path leads into; `args_0` for a variadic one."""
        group, place = path[:2]
        if group == 1:
            return str(place)
        formal = list(forward_signature(forward).parameters.values())
        for position, parameter in enumerate(formal):
            if parameter.kind is parameter.VAR_POSITIONAL:
                return f"{parameter.name}_{place - position}"
            if position == place:
                return parameter.name
        return f"args_{place}"

    def rebuild(self, tensors: Sequence[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The same arguments with other tensors, in objects, lists and dicts of their own."""
        given = iter(tensors)
        leaves = [next(given) if isinstance(leaf, torch.Tensor) else leaf for leaf in self.leaves]
        for place in self.counting:
            leaves[place] = leaves[place].shape[0]
        structure = self._flat[1]
        tree = pytree.tree_unflatten(leaves, structure)
        return closed(tree) if has_objects(structure) else tree


def with_sizes(leaves: Sequence[Any], counting: frozenset[int]) -> list[Any]:
    """Leaves with tensors for those numbers whose values a trace is to follow."""
    return [size_of_number(x) if place in counting else x for place, x in enumerate(leaves)]


def flatten(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[list[Any], pytree.TreeSpec]:
    """The leaves of a call, and its structure.

    Raises:
        CallError: an argument that holds itself, is nested too deeply for Python, or is an object that other
            arguments lead to as well.
    """
    try:
        given = args, kwargs
        leaves, structure = pytree.tree_flatten(given)
        tree = opened(given, leaves)
        return (leaves, structure) if tree is given else pytree.tree_flatten(tree)
    except RecursionError as error:
        raise CallError(
            "the arguments are nested too deeply",
            why="a list, tuple or dict among them holds itself, or more levels than Python can follow",
            fix="pass tensors and plain values in fewer levels",
        ) from error


def _key(entry: Any) -> Any:
    for name in ("idx", "key", "name"):
        if hasattr(entry, name):
            return getattr(entry, name)
    return str(entry)


def _access(entry: Any) -> str:
    if isinstance(entry, pytree.GetAttrKey):
        return f".{entry.name}"
    return f"[{_key(entry)!r}]"
