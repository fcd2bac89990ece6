"""What a call must agree with to reuse a compiled variant: its inputs and torch's modes.

They are compared by a key, in time proportional to the number of inputs; `module_watch.py` watches the module
itself.
"""

from __future__ import annotations

import enum
import types
from collections.abc import Container, Hashable, Sequence
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from torch import nn
from torch.utils import _pytree as pytree

from daceml.errors import CallError
from daceml.frontend.capture.call_device import DEVICE_TYPES, autocast_types

_PLAIN = (torch.Tensor, nn.Parameter, nn.Buffer)
_dispatch_keys = torch._C._dispatch_keys  # pyright: ignore[reportPrivateUsage]


def _dense_keys(device: str) -> frozenset[int]:
    with torch.inference_mode():
        inference = _dispatch_keys(torch.empty(0, device=device)).raw_repr()
    return frozenset({inference, _dispatch_keys(torch.empty(0, device=device)).raw_repr()})


# Tensors that are memory and nothing else: no sparse, quantised, batched, negated or fake ones. Those of a
# device are added when the first one comes.
_DENSE = set(_dense_keys("cpu"))


def _is_plain(tensor: torch.Tensor) -> bool:
    """Whether a tensor is memory and nothing else, on a device that programs run on."""
    if type(tensor) not in _PLAIN:
        return False
    if _dispatch_keys(tensor).raw_repr() in _DENSE:
        return True
    if tensor.device.type != "cuda" or not torch.cuda.is_available():
        return False
    _DENSE.update(_dense_keys("cuda"))
    return _dispatch_keys(tensor).raw_repr() in _DENSE


# Values that a program may be compiled for; anything else may hold tensors, or change without a trace.
_CONSTANTS = (
    bool, int, str, bytes, type(None), torch.dtype, torch.device, torch.memory_format, torch.layout,
    enum.Enum, type, types.FunctionType, types.BuiltinFunctionType, np.generic, slice, range, type(Ellipsis),
)  # fmt: skip


class TensorKey(NamedTuple):
    """What a variant depends on in one tensor.

    Attributes:
        strides: None for row-major order.
        gradient: whether it requires a gradient, in a call that could give it one.
    """

    dtype: torch.dtype
    shape: torch.Size
    device: torch.device
    strides: tuple[int, ...] | None
    gradient: bool


class ConstantKey(NamedTuple):
    """What a variant depends on in an argument that is no tensor: its type, and its value or spelling."""

    kind: type
    value: Hashable


class Modes(NamedTuple):
    """torch's modes that decide what a forward does."""

    grad_enabled: bool
    autocast: tuple[torch.dtype | None, ...]
    default_dtype: torch.dtype


class CallKey(NamedTuple):
    """Everything about a call that a variant depends on."""

    modes: Modes
    leaves: tuple[TensorKey | ConstantKey, ...]
    structure: pytree.TreeSpec | None


def call_key(leaves: Sequence[Any], structure: pytree.TreeSpec | None = None) -> tuple[Any, ...]:
    """The key of a call with these leaves, under torch's modes of now; equal to a `CallKey`, and quicker.

    Args:
        structure: of the arguments; None where all are tensors by position.
    Raises:
        CallError: a leaf that is neither a plain tensor nor a constant.
    """
    grad = torch.is_grad_enabled()
    return (grad, autocast_types(), torch.get_default_dtype()), input_key(leaves, grad), structure


def named_key(key: tuple[Any, ...]) -> CallKey:
    """The same key with names for its parts."""
    modes, leaves, structure = key
    kinds = {len(kind._fields): kind for kind in (TensorKey, ConstantKey)}
    return CallKey(Modes(*modes), tuple(kinds[len(leaf)](*leaf) for leaf in leaves), structure)


def input_key(leaves: Sequence[Any], grad_enabled: bool = False) -> tuple[tuple[Any, ...], ...]:
    """The leaves' part of a key.

    Raises:
        CallError: a leaf that is neither a plain tensor nor a constant.
    """
    key: list[tuple[Any, ...]] = []
    for position, leaf in enumerate(leaves):
        if isinstance(leaf, torch.Tensor):
            if not _is_plain(leaf):
                raise CallError(**refusal(leaf, f"argument {position}"))
            strides = None if leaf.is_contiguous() else leaf.stride()
            key.append((leaf.dtype, leaf.shape, leaf.device, strides, grad_enabled and leaf.requires_grad))
        elif isinstance(leaf, float | complex):
            # 0.0 == -0.0 and nan != nan, but they spell themselves apart
            key.append((type(leaf), repr(leaf)))
        elif isinstance(leaf, _CONSTANTS):
            key.append((type(leaf), repr(leaf) if isinstance(leaf, slice) else leaf))
        else:
            raise CallError(**_foreign_leaf(leaf, position))
    return tuple(key)


def refusal(tensor: torch.Tensor, name: str) -> dict[str, str]:
    """Why a tensor cannot reach compiled code, as the parts of an error."""
    if tensor.device.type not in DEVICE_TYPES:
        return {
            "what": f"{name} of a compiled module lies on {tensor.device}",
            "why": "programs are compiled for the CPU and for CUDA devices",
            "fix": "pass tensor.cpu(), or call the eager module",
        }
    if type(tensor) not in _PLAIN:
        return {
            "what": f"a {type(tensor).__name__} cannot be passed to a compiled module ({name})",
            "why": "tensor subclasses attach behaviour that a compiled program would silently drop",
            "fix": "pass a plain tensor (for example .as_subclass(torch.Tensor)), or call the eager module",
        }
    kind, why, dense = _other_memory(tensor)
    return {
        "what": f"{kind} tensor cannot be passed to a compiled module ({name})",
        "why": f"compiled programs read one number for each element from memory; {why}",
        "fix": f"pass tensor.{dense}, or call the eager module",
    }


def _other_memory(tensor: torch.Tensor) -> tuple[str, str, str]:
    """What a tensor is called that is more than its memory, what that holds, and what makes it plain."""
    if tensor.is_nested:
        return "a nested", "this one is a list of tensors", "to_padded_tensor(0.0)"
    if tensor.is_quantized:
        return "a quantised", "this one holds integers with a scale", "dequantize()"
    if tensor.is_neg():
        return "a lazily negated", "of this one the sign is still to be changed", "resolve_neg()"
    if tensor.is_conj():
        return "a lazily conjugated", "of this one the conjugate is still to be taken", "resolve_conj()"
    if tensor.layout is torch.strided:
        return "a wrapped", "this one stands for others (vmap, grad, jvp) or has no memory", "clone()"
    kind = str(tensor.layout).removeprefix("torch.").removeprefix("_")
    if kind.startswith("sparse"):
        why = "this one holds places and values of its elements other than 0"
    else:
        why = "this one holds them in an order of its own"
    return f"a {kind}", why, "to_dense()"


def _foreign_leaf(leaf: Any, position: int) -> dict[str, str]:
    name = type(leaf).__name__
    if isinstance(leaf, np.ndarray):
        fix = "pass torch.from_numpy(array)"
    else:
        fix = (
            "pass its tensors and numbers, or register its type with torch.export.register_dataclass or "
            "torch.utils._pytree.register_pytree_node"
        )
    return {
        "what": f"leaf {position} of the arguments is a {name}, which cannot be part of a compiled call",
        "why": "arguments are tensors and plain values, in tuples, lists and dicts: a program could not see "
        f"when a {name} changes",
        "fix": fix,
    }


def key_difference(before: CallKey, now: CallKey, names: Sequence[str]) -> str | None:
    """The first guard that tells two calls apart, in words, or None.

    Args:
        names: of the leaves of `now`.
    """
    for mode, was, given in zip(Modes._fields, before.modes, now.modes, strict=True):
        if was != given:
            return f"{mode} is {given} instead of {was}"
    if before.structure != now.structure or len(before.leaves) != len(now.leaves):
        return "the arguments are of another structure"
    for name, was, given in zip(names, before.leaves, now.leaves, strict=True):
        if was == given:
            continue
        if isinstance(was, TensorKey) and isinstance(given, TensorKey):
            for part, old, new in zip(TensorKey._fields, was, given, strict=True):
                if old != new:
                    old, new = (tuple(v) if isinstance(v, torch.Size) else v for v in (old, new))
                    return f"{part} of {name} is {new} instead of {old}"
        values = [key.value if isinstance(key, ConstantKey) else "a tensor" for key in (given, was)]
        return f"{name} is {values[0]} instead of {values[1]}"
    return None


def same_but_sizes(one: CallKey, other: CallKey, without: Container[int] = ()) -> bool:
    """Whether two calls differ in sizes only, and in what leaves are at certain places."""
    if one.modes != other.modes or one.structure != other.structure or len(one.leaves) != len(other.leaves):
        return False
    for place, (a, b) in enumerate(zip(one.leaves, other.leaves, strict=True)):
        if place in without:
            continue
        if isinstance(a, ConstantKey) or isinstance(b, ConstantKey):
            if a != b:
                return False
        elif (a.dtype, len(a.shape), a.device, a.gradient) != (
            b.dtype,
            len(b.shape),
            b.device,
            b.gradient,
        ) or _order(a) != _order(b):
            return False
    return True


def _order(key: TensorKey) -> tuple[int, ...] | None:
    """The order of the dimensions in memory; None for row-major."""
    if key.strides is None:
        return None
    return tuple(sorted(range(len(key.strides)), key=key.strides.__getitem__))


def is_number(leaf: TensorKey | ConstantKey) -> bool:
    """Whether an argument is a number that a size can be."""
    return isinstance(leaf, ConstantKey) and leaf.kind is int and cast(int, leaf.value) >= 0


def numbers_at(leaves: Sequence[Any], places: set[int]) -> frozenset[int]:
    """Those of the places that hold a number that a size can be."""
    return frozenset(p for p in places if type(leaves[p]) is int and leaves[p] >= 0)
