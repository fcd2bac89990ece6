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
_TensorGuards, _autocast_enabled = _C._dynamo.guards.TensorGuards, _C._is_any_autocast_enabled
_modes, _transforms = _C._len_torch_dispatch_stack, _C._functorch.peek_interpreter_stack
_is_grad_enabled, _is_inference_mode = torch.is_grad_enabled, torch.is_inference_mode_enabled
_default_dtype = torch.get_default_dtype

OTHER: Final = object()
"""Stands for a result where the call is another one."""


class RepeatedCall:
    """The program that a call has run, for calls that differ from it in numbers alone.

    It asks what `call_key` and `Session` ask, of torch's modes one by one and of all tensors by one native
    function: between a small module and its kernels that is most of the time. Whatever is unusual is another
    call.

    Args:
        variant: that has run.
        tensors: its arguments, in row-major order.
    """

    __slots__ = ("_count", "_default_dtype", "_direct", "_grad", "_requiring", "_same", "_variant", "_watch")

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
        sizes, strides = [[*x.shape] for x in tensors], [[*x.stride()] for x in tensors]
        # class, dispatch keys, type, device, sizes, strides, and whether it requires a gradient
        self._same = _TensorGuards(*tensors, dynamic_dims_sizes=sizes, dynamic_dims_strides=strides).check

    def __call__(self, args: tuple[Any, ...]) -> Any:
        """What forward returns for these arguments, or `OTHER`."""
        if (
            len(args) != self._count
            or _is_grad_enabled() is not self._grad
            or _default_dtype() is not self._default_dtype
            or _autocast_enabled()
            or _is_inference_mode()
            or _modes()
            or _transforms() is not None
            or forward_ad._current_level >= 0  # pyright: ignore[reportPrivateUsage]
            or _stances[0] == "force_eager"
            or (_recording and open_ledger() is not None)
            or _has_any_global_hook()
            or not self._same(*args)
            or not self._watch()
        ):
            return OTHER
        variant = self._variant
        if self._requiring and not variant.same_gradients():
            return OTHER
        if (direct := self._direct) is not None:
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
    effects = variant.writes or variant.changes or variant.assigned
    unusual = (
        effects or variant.reads or variant.template.gives_back or _is_inference_mode() or _autocast_enabled()
    )
    # without a backward pass, a call with gradients enabled has to detach what it returns
    detached = _is_grad_enabled() and variant.backward is None
    return RepeatedCall(variant, tensors) if simple and not unusual and not detached else None
