"""What a call must agree with to reuse a compiled variant: its inputs, and the module it was compiled from.

Inputs are compared by a key, in time proportional to their number. The module is polled: which tensors,
submodules and training flags it holds, by identity. A replaced parameter, `functional_call` or a frozen batch
norm therefore never meets a program that was bound to something else.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import torch
from torch import nn

from daceml.errors import CallError
from daceml.runtime.watch import WatchedDict, dict_watch

_PLAIN = (torch.Tensor, nn.Parameter, nn.Buffer)

# What nn.Module itself keeps in every module; of these only the mode reaches an exported graph.
_FRAMEWORK = frozenset(nn.Module().__dict__) - {"training"}

_MEMBERS = ("_parameters", "_buffers", "_modules")
_HOOKS = ("_forward_hooks", "_forward_pre_hooks")

# Compared by value where the object is another one
_VALUES = (bool, int, float, complex, str, bytes, tuple, torch.dtype, torch.device)


def input_key(leaves: Sequence[Any]) -> tuple[Hashable, ...]:
    """Everything about the inputs that a variant depends on: shape, type and device of tensors, value of the
    rest.

    Raises:
        CallError: a tensor subclass, or a leaf that cannot be compared.
    """
    key: list[Hashable] = []
    for leaf in leaves:
        if isinstance(leaf, torch.Tensor):
            if type(leaf) not in _PLAIN:
                _refuse_subclass(leaf)
            key.append((leaf.dtype, leaf.shape, leaf.device))
        else:
            try:
                hash(leaf)
            except TypeError as error:
                raise CallError(
                    f"an argument of type {type(leaf).__name__} cannot be part of a compiled call",
                    why="arguments are tensors, or plain values that can be compared (numbers, text)",
                    fix="pass a tensor, or register the type with torch.utils._pytree.register_pytree_node",
                ) from error
            key.append((type(leaf), leaf))
    return tuple(key)


class ModuleWatch:
    """A snapshot of a module: what an export may have built into a program.

    Tensors and submodules count by identity (programs share their memory), training flags and the module's
    own attributes too: `module.temperature = 0.7` is a constant of the exported graph. Tensors that are plain
    attributes are constants as well, and count with their version. What happens inside a list or dict is not
    seen.
    """

    def __init__(self, module: nn.Module) -> None:
        self._entries: dict[str, Any] = {}
        self._tensors: list[tuple[torch.Tensor, int]] = []
        dicts: list[WatchedDict] = []
        for path, child in module.named_modules():
            own = child.__dict__
            attributes = tuple(name for name in own if name not in _FRAMEWORK)
            # hooks of the module itself run at every call; those within are traced
            kinds = _MEMBERS if child is module else (*_MEMBERS, *_HOOKS)
            members: list[tuple[str, dict[Any, Any]]] = [(kind, own[kind]) for kind in kinds]
            dicts += [(own, attributes), *((m, tuple(m)) for _, m in members)]
            self._tensors += [(t, t._version) for n in attributes if isinstance(t := own[n], torch.Tensor)]
            prefix = f"{path}." if path else ""
            self._entries |= {prefix + name: own[name] for name in attributes}
            # a hook's number may be the name of a submodule, as in nn.Sequential
            self._entries |= {
                f"{prefix}{kind}.{name}" if kind in _HOOKS else f"{prefix}{name}": value
                for kind, m in members
                for name, value in m.items()
            }
        self._held = dict_watch(dicts)

    def unchanged(self) -> bool:
        """Whether the module still holds the very objects of the snapshot."""
        return self._held() and all(tensor._version == version for tensor, version in self._tensors)

    def difference(self, now: ModuleWatch) -> str | None:
        """The first entry that differs, or None; plain values that were replaced by equal ones do not."""
        if self._entries.keys() != now._entries.keys():
            return sorted(self._entries.keys() ^ now._entries.keys())[0]
        for name, before in self._entries.items():
            after = now._entries[name]
            if before is not after and not (
                type(before) is type(after) and isinstance(before, _VALUES) and before == after
            ):
                return name
        changed = [t for t, version in self._tensors if t._version != version]
        return next((name for name, value in self._entries.items() for t in changed if value is t), None)


def _refuse_subclass(leaf: torch.Tensor) -> None:
    raise CallError(
        f"a {type(leaf).__name__} cannot be passed to a compiled module",
        why="tensor subclasses attach behaviour that a compiled program would silently drop",
        fix="pass a plain tensor (for example .as_subclass(torch.Tensor)), or call the eager module",
    )
