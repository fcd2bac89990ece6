"""A call like the one before: its program once more, after the fewest questions that settle that it fits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import torch
from torch.autograd import forward_ad
from torch.nn.modules.module import _has_any_global_hook  # pyright: ignore[reportPrivateUsage]

from daceml.compiler.stance import stances as _stances
from daceml.errors import SharedMemoryError, StaleWeightError
from daceml.module.partial.region_ledger import open_ledger
from daceml.module.partial.region_ledger import recording as _recording

if TYPE_CHECKING:
    from daceml.module.compiled_variant import Variant

_C: Any = torch._C  # pyright: ignore[reportPrivateUsage]
_dispatch_keys, _autocast_enabled = _C._dispatch_keys, _C._is_any_autocast_enabled
_modes, _transforms = _C._len_torch_dispatch_stack, _C._functorch.peek_interpreter_stack
_is_grad_enabled, _is_inference_mode = torch.is_grad_enabled, torch.is_inference_mode_enabled
_default_dtype, _Tensor = torch.get_default_dtype, torch.Tensor

OTHER: Final = object()
"""Stands for a result where the call is another one."""


class RepeatedCall:
    """The program that a call has run, for calls that differ from it in numbers alone.

    It asks what `call_key` and `Session` ask, of each tensor and of torch's modes, one by one and without a
    key: between a small module and its kernels that is most of the time. Whatever is unusual is another call.

    Args:
        variant: that has run.
        tensors: its arguments, in row-major order.
    """

    __slots__ = (
        "_count",
        "_default_dtype",
        "_direct",
        "_grad",
        "_requiring",
        "_tensors",
        "_variant",
        "_watch",
    )

    def __init__(self, variant: Variant, tensors: Sequence[torch.Tensor]) -> None:
        grad = _is_grad_enabled()
        self._variant = variant
        self._watch = variant.watch.unchanged
        self._requiring = bool(variant.requiring)
        self._grad = grad
        self._default_dtype = _default_dtype()
        # without gradients and effects, the result is what the program returns
        plain = not (grad or variant.backward or variant.writes) and variant.template.structure is None
        self._direct = variant.program.call_once if plain and variant.program.is_one_call else None
        self._count = len(tensors)
        self._tensors = [
            (x.shape, _dispatch_keys(x).raw_repr(), (x.dtype, x.device, grad and x.requires_grad))
            for x in tensors
        ]

    def __call__(self, args: tuple[Any, ...]) -> Any:
        """What forward returns for these arguments, or `OTHER`."""
        grad = self._grad
        if (
            len(args) != self._count
            or _is_grad_enabled() is not grad
            or _default_dtype() is not self._default_dtype
            or _autocast_enabled()
            or _is_inference_mode()
            or _modes()
            or _transforms() is not None
            or forward_ad._current_level >= 0  # pyright: ignore[reportPrivateUsage]
            or _stances[0] == "force_eager"
            or (_recording and open_ledger() is not None)
            or _has_any_global_hook()
        ):
            return OTHER
        direct = self._direct
        for x, (shape, keys, more) in zip(args, self._tensors):  # noqa: B905  as many, which was asked
            if type(x) is not _Tensor or x.shape != shape or _dispatch_keys(x).raw_repr() != keys:
                return OTHER
            if direct is None:
                dtype, device, wants = more
                if (
                    x.dtype is not dtype
                    or x.device != device
                    or not x.is_contiguous()
                    or (grad and x.requires_grad is not wants)
                ):
                    return OTHER
        variant = self._variant
        if not self._watch() or (self._requiring and not variant.same_gradients()):
            return OTHER
        if direct is not None:
            # a program looks at the types, devices and layouts of its inputs itself
            outputs = direct(args)
            return OTHER if outputs is None else outputs[0]
        try:
            return variant(args)
        except (StaleWeightError, SharedMemoryError):
            return OTHER  # nothing has run; the session finds what is different


def repeated(variant: Variant, tensors: Sequence[torch.Tensor], args: tuple[Any, ...]) -> RepeatedCall | None:
    """What calls like this one may use; None where they need more than their tensors.

    Args:
        tensors: all leaves of the arguments.
        args: without keywords.
    """
    simple = len(tensors) == len(args) and all(
        type(x) is torch.Tensor and x is given and x.is_contiguous()
        for x, given in zip(tensors, args, strict=True)
    )
    effects = variant.writes or variant.changes or variant.assigned or variant.program.mutated
    unusual = (
        effects or variant.reads or variant.template.gives_back or _is_inference_mode() or _autocast_enabled()
    )
    # without a backward pass, a call with gradients enabled has to detach what it returns
    detached = _is_grad_enabled() and variant.backward is None
    return RepeatedCall(variant, tensors) if simple and not unusual and not detached else None
