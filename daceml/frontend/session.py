"""The compiled variants of one module: chooses one by guards, compiles a new one where none fits."""

from __future__ import annotations

import inspect
import logging
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from daceml.errors import BackwardUnavailableError, CallError
from daceml.frontend.guards import ModuleWatch, input_key
from daceml.frontend.results import ResultTemplate

if TYPE_CHECKING:
    import onnx
    from torch.export import ExportedProgram

    from daceml.runtime.program import Program
    from daceml.sdfg.network import Network

log = logging.getLogger(__name__)

# Variants of one module for the same inputs: training and evaluation, frozen parts, replaced parameters.
_MODULE_STATES = 8


@dataclass(eq=False)
class Variant:
    """One compiled form of a module.

    Attributes:
        program: bound to the module's tensors.
        exported: what torch.export made of the module.
        watch: the state of the module that the variant is right for.
        template: how outputs are put together.
    """

    program: Program
    exported: ExportedProgram
    watch: ModuleWatch
    template: ResultTemplate
    stages_s: dict[str, float] = field(default_factory=dict[str, float])

    @cached_property
    def onnx_model(self) -> onnx.ModelProto:
        """The ONNX model."""
        import onnx_ir

        from daceml.frontend.export import to_onnx

        return onnx_ir.to_proto(to_onnx(self.exported))

    @cached_property
    def network(self) -> Network:
        """The SDFG after all transformations, with its interface."""
        from daceml.frontend.compile import optimised_network

        return optimised_network(self.exported).network


class Session:
    """Compiles a module on demand and calls it.

    Args:
        eager: the module as the user wrote it.
        backward: whether gradients are wanted.
        dynamic_shapes: for torch.export.
    """

    def __init__(self, eager: nn.Module, *, backward: bool = True, dynamic_shapes: Any = None) -> None:
        self.eager = eager
        self.options = {"backward": backward, "dynamic_shapes": dynamic_shapes}
        self._variants: dict[Any, list[Variant]] = {}
        self._lock = threading.RLock()
        self._latest: Variant | None = None

    def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        variant, tensors = self._prepare(args, kwargs)
        contiguous = [x if x.is_contiguous() else x.contiguous() for x in tensors]
        return variant.template.fill(variant.program(contiguous), tensors)

    def variant(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Variant, list[torch.Tensor]]:
        """The variant that these arguments reach, compiled if need be, and its tensor inputs."""
        return self._prepare(args, kwargs)

    @property
    def latest(self) -> Variant:
        """The last compiled variant.

        Raises:
            CallError: nothing has been compiled yet.
        """
        if self._latest is None:
            raise CallError(
                f"{type(self.eager).__name__} has not been compiled yet",
                why="shapes are known at the first call only",
                fix="call the module once",
            )
        return self._latest

    def _prepare(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Variant, list[torch.Tensor]]:
        structure: Any = None
        leaves: Sequence[Any] = args
        if kwargs or not all(isinstance(a, torch.Tensor) for a in args):
            leaves, structure = pytree.tree_flatten((args, kwargs))
        self._check_modes(leaves)
        key = (input_key(leaves), structure)
        variant = self._find(key)
        if variant is None:
            with self._lock:
                variant = self._find(key) or self._find_equal(key) or self._compile(key, args, kwargs)
        return variant, [x for x in leaves if isinstance(x, torch.Tensor)]

    def _find(self, key: Any) -> Variant | None:
        for variant in self._variants.get(key, ()):
            if variant.watch.unchanged():
                return variant
        return None

    def _find_equal(self, key: Any) -> Variant | None:
        """A variant for which the module differs in objects only, not in what they are."""
        known = self._variants.get(key, ())
        now = ModuleWatch(self.eager) if known else None
        for variant in known:
            if now is not None and variant.watch.difference(now) is None:
                variant.watch = now
                return variant
        return None

    def _compile(self, key: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Variant:
        from daceml.frontend.compile import compile_variant

        self._check_signature(args, kwargs)
        known = self._variants.setdefault(key, [])
        reason = "new inputs" if len(self._variants) > 1 else "first call"
        if known:
            changed = known[0].watch.difference(ModuleWatch(self.eager))
            reason = f"{changed} of the module has changed"
        level = logging.WARNING if len(known) == _MODULE_STATES else logging.INFO
        log.log(level, "compiling %s: %s", type(self.eager).__name__, reason)
        variant = compile_variant(self.eager, args, kwargs, self.options["dynamic_shapes"])
        known.insert(0, variant)
        del known[_MODULE_STATES:]
        self._latest = variant
        return variant

    def _check_signature(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        signature = inspect.signature(self.eager.forward)
        try:
            signature.bind(*args, **kwargs)
        except TypeError as error:
            name = type(self.eager).__name__
            raise CallError(
                f"{name} cannot be called with these arguments",
                why=str(error),
                fix=f"call it as {name}{signature}",
            ) from error

    def _check_modes(self, leaves: Sequence[Any]) -> None:
        if self.options["backward"] and torch.is_grad_enabled():
            wanting = [
                x
                for x in (*leaves, *self.eager.parameters())
                if isinstance(x, torch.Tensor) and x.requires_grad
            ]
            if wanting:
                raise BackwardUnavailableError(
                    f"{type(self.eager).__name__} was called with gradients enabled, without a backward pass",
                    why=f"{len(wanting)} of its inputs and parameters require a gradient",
                    fix="backward not available: use no_grad or backward=False\n"
                    "(torch.no_grad() around the call, or daceml.compile(module, backward=False))",
                )
        if torch.is_autocast_enabled("cpu"):
            raise CallError(
                "a compiled module was called under autocast",
                why="autocast changes types inside kernels that were compiled for the types of the inputs",
                fix="leave the autocast region for this module, or convert it with module.to(torch.bfloat16)",
            )
