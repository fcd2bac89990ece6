"""Hooks of submodules that a trace cannot follow."""

from __future__ import annotations

import dis
import types
from collections import deque
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import torch
from torch import nn

from daceml.frontend.capture.hook_state import CODE, functions_of, variables_of
from daceml.frontend.capture.module_attributes import is_plain_object, walk

_OPAQUE_BUT_CONSTANT = (
    bool, int, float, complex, str, bytes, type(None), type(...), type, property, ContextVar,
    types.BuiltinFunctionType, types.ModuleType, torch.dtype, torch.device, torch.layout, torch.memory_format,
)  # fmt: skip
_WATCHED = (torch.Tensor, nn.Module, list, tuple, dict, set, frozenset, deque)


def hook_refusal(hook: Callable[..., Any]) -> str | None:
    """Why a trace cannot tell whether a hook keeps something; None if it can."""
    for function in functions_of(hook, set()):
        outer = set(function.__code__.co_freevars)
        for step in dis.get_instructions(function.__code__):
            if step.opname in ("STORE_DEREF", "DELETE_DEREF") and step.argval in outer:
                return f"assigns its variable {step.argval!r}"
    seen: set[int] = set()
    for _, name, read in variables_of(hook, set()):
        for path, part in walk(name, read(), seen):
            constant = isinstance(part, (*_OPAQUE_BUT_CONSTANT, *CODE))
            if not constant and not isinstance(part, _WATCHED) and not is_plain_object(part):
                return f"uses {path}, whose type {type(part).__qualname__} does not show its state"
    return None
