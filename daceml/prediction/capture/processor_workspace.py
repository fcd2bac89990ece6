"""Memory that torch's kernels on a processor take and give back within one call, which no tensor shows.

oneDNN's convolutions work on blocks of 16 channels (8 without AVX-512, whose sizes differ only where channels
are no multiple of 16), so that operands of another layout are copied before, and results behind. Products
copy an operand whose strides BLAS cannot take, such as a gradient that was expanded.

Sources: pytorch, aten/src/ATen/native: mkldnn/Conv.cpp (mkldnn_convolution, mkldnn_convolution_backward),
Convolution.cpp (ConvParams::use_mkldnn), LinearAlgebra.cpp (addmm_impl_cpu_, prepare_matrix_for_blas). The
order of copies is as a profiler recorded it with torch 2.13.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

_aten: Any = torch.ops.aten
_CHANNELS = 16
_LARGE = 20480  # elements of a single image


def workspace_bytes(func: Any, args: Sequence[Any], result: Any) -> int:
    """The most that a call holds at once beside its operands and results."""
    rule = _RULES.get(func)
    return 0 if rule is None else rule(result, *args)


def has_unknown_workspace(func: Any) -> bool:
    """Whether a call keeps memory whose size the library decides and nobody says."""
    return func is _aten.mkldnn_rnn_layer.default


def _forward(y: Any, x: Any, w: Any, _: Any, *how: Any) -> int:
    if not _by_onednn(x, w, how):
        return 0
    if _channels_last(x):
        return _bytes(w)
    # copies of x and w with a blocked result; then that and the plain one
    twice = _bytes(y) if _in_two_steps(how, transposed=True) else 0
    return max(_copy_bytes(x) + _bytes(w), _copy_bytes(y) + twice)


def _backward(_: Any, dy: Any, x: Any, w: Any, __: Any, *rest: Any) -> int:
    *how, wanted = rest
    if not _by_onednn(x, w, how):
        return 0
    expanded = _bytes(dy) if 0 in dy.stride() else 0
    if _channels_last(x):
        return expanded + 2 * _bytes(w)
    dx = _bytes(x) if wanted[0] else 0
    dw = _bytes(w) if wanted[1] else 0
    plain = 2 if _in_two_steps(how, transposed=False) else 1
    moments = [0]
    if wanted[0]:
        moments += [_copy_bytes(dy) + _bytes(w) + dx, (1 + plain) * dx]
    if wanted[1]:
        moments += [dx + _copy_bytes(dy) + _copy_bytes(x) + dw, dx + 2 * dw]
    return max(max(moments) - dx - dw, 0) + expanded


def _channels_last(x: Any) -> bool:
    """Whether images are taken as they are: then only weights are copied."""
    last = {4: torch.channels_last, 5: torch.channels_last_3d}.get(x.ndim)
    return last is not None and x.is_contiguous(memory_format=last) and not x.is_contiguous()


def _by_onednn(x: Any, w: Any, how: Sequence[Any]) -> bool:
    """Whether it is not left to torch's own kernels, which keep what they need for themselves."""
    stride, _, dilation, _, _, groups = how
    if x.dtype != torch.float32 or not torch.backends.mkldnn.is_available():
        return False
    kernel, images = (1, *w.shape[2:])[-2:], x.shape[0]
    worth_it = any(one > 1 for one in (*stride, *dilation)) or images >= 16 or max(kernel) > 1
    large = groups > 1 or min(kernel) > 3 or images > 1 or x.numel() > _LARGE
    return bool((worth_it or torch.get_num_threads() > 1) and large)


def _in_two_steps(how: Sequence[Any], *, transposed: bool) -> bool:
    """Whether a result is made plain by way of a second copy: those that a stride spreads."""
    return how[3] == transposed and max(how[0]) > 1


def _copy_bytes(images: Any) -> int:
    """Of a blocked copy; images of a few channels are taken as they are."""
    channels = images.shape[1]
    if channels < _CHANNELS:
        return 0
    return -(-channels // _CHANNELS) * _CHANNELS * (_bytes(images) // channels)


def _product(_: Any, *operands: Any) -> int:
    """Copies of matrices, the last two operands."""
    return sum(_bytes(one) for one in operands[-2:] if not _taken_by_blas(one))


def _taken_by_blas(matrix: Any) -> bool:
    (rows, columns), (down, right) = matrix.shape[-2:], matrix.stride()[-2:]
    return bool((right == 1 and down >= max(1, columns)) or (down == 1 and right >= max(1, rows)))


def _bytes(tensor: Any) -> int:
    return tensor.numel() * tensor.element_size()


_RULES: dict[Any, Callable[..., int]] = {
    _aten.convolution.default: _forward,
    _aten.convolution_backward.default: _backward,
    _aten.mm.default: _product,
    _aten.bmm.default: _product,
    _aten.addmm.default: _product,
    _aten.baddbmm.default: _product,
}
