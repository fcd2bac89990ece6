"""Layers in a trace: every module's forward pass becomes an annotation with the module's name.

Nothing waits for a device: whoever reads the trace finds the launch of a kernel inside the annotation, and
the backward operators by autograd's sequence numbers.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from torch import nn
from torch.autograd.profiler import record_function

PREFIX = "daceml.layer: "


def layer_names(model: nn.Module) -> dict[nn.Module, tuple[str, ...]]:
    """Every module of a model and its fully qualified names, those of shared modules all; pure.

    The outermost module goes by its class. What is inside a compiled module is left out: it does not run
    module by module, and hooks inside would make it do so.
    """
    found: dict[nn.Module, list[str]] = {model: [type(model).__name__]}
    _collect(model, "", found, {model})
    return {module: tuple(names) for module, names in found.items()}


def _collect(module: nn.Module, path: str, found: dict[nn.Module, list[str]], above: set[nn.Module]) -> None:
    if is_compiled(module):
        return
    # `named_children` would leave out a module's second name
    for name, child in module._modules.items():  # pyright: ignore[reportPrivateUsage]
        if child is None or child in above:
            continue
        whole = f"{path}.{name}" if path else name
        found.setdefault(child, []).append(whole)
        _collect(child, whole, found, above | {child})


def is_compiled(module: nn.Module) -> bool:
    """Whether daceml or torch compiles the module as a whole; loads neither compiler."""
    homes = (
        ("daceml.module.module", "DaceModule"),
        ("torch._dynamo.eval_frame", "OptimizedModule"),
        ("torch.jit", "ScriptModule"),
    )
    kinds = (getattr(sys.modules.get(home), name, None) for home, name in homes)
    return any(isinstance(kind, type) and isinstance(module, kind) for kind in kinds)


@contextmanager
def layers_marked(model: nn.Module) -> Generator[None]:
    """Annotate every forward pass of the model's modules while this lasts, also where one raises."""
    open_marks = threading.local()

    def enter(name: str) -> Any:
        def hook(module: nn.Module, args: Any) -> None:
            mark = record_function(name)
            mark.__enter__()
            open_marks.stack = [*getattr(open_marks, "stack", ()), (module, mark)]

        return hook

    def leave(module: nn.Module, args: Any, result: Any) -> None:
        stack: list[tuple[nn.Module, Any]] = getattr(open_marks, "stack", [])
        # a pass that began before the hooks were there has no mark
        if not any(owner is module for owner, _ in stack):
            return
        owner = None
        while owner is not module:
            owner, mark = stack.pop()
            mark.__exit__(None, None, None)

    handles: list[Any] = []
    try:
        for module, names in layer_names(model).items():
            handles.append(module.register_forward_pre_hook(enter(PREFIX + names[0]), prepend=True))
            handles.append(module.register_forward_hook(leave, always_call=True))
        yield
    finally:
        for handle in handles:
            handle.remove()
