"""What programs make of weights when they are bound."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import torch

from daceml.runtime import launcher
from daceml.runtime.records.manifest import PreparedRecord
from daceml.runtime.weight_operators import OPERATORS, Function, Sources

# Of float32, with room for sums of products in any order
_LARGEST = 1e36
# As daceml/pointwise.h has it
_PANEL = 32


def prepared_weights(
    records: Iterable[PreparedRecord], state: Mapping[str, torch.Tensor]
) -> list[torch.Tensor]:
    """The prepared arrays that a program reads, as the module's weights are now.

    Where a fingerprint is among them, all are made of one copy of the weights, and the fingerprint is that of
    the copy: another thread that writes a weight meanwhile leaves one that the next call finds to be another.

    Args:
        records: in an order in which each is made of those before it.
        state: state_dict key -> tensor.
    """
    made: list[torch.Tensor] = []
    kept: list[torch.Tensor] = []
    records = tuple(records)
    if any(record.function == "fingerprint" for record in records):
        keys = {key for record in records for key in record.keys if isinstance(key, str)}
        state = {key: _copy(state[key].detach()) for key in keys}

    def source(key: str | int | None) -> torch.Tensor | None:
        if key is None:
            return None
        return made[key] if isinstance(key, int) else state[key].detach()

    with torch.no_grad():
        for record in records:
            made.append(_FUNCTIONS[record.function](tuple(map(source, record.keys)), record))
            if record.read:
                kept.append(made[-1])
    return kept


def _copy(weight: torch.Tensor) -> torch.Tensor:
    """A weight with the same strides, and what lies between its elements, which a fingerprint sees, too."""
    if weight.numel() == 0:
        return weight
    last = sum((n - 1) * step for n, step in zip(weight.shape, weight.stride(), strict=True))
    return weight.as_strided((last + 1,), (1,)).clone().as_strided(weight.shape, weight.stride(), 0)


def _convolution(sources: Sources, record: PreparedRecord) -> torch.Tensor:
    """oneDNN's order for a convolution: pads, strides, dilations, (group,), sizes of the input."""
    pads, strides, dilations, (group,), sizes = record.numbers
    return torch.ops.mkldnn._reorder_convolution_weight(sources[0], pads, strides, dilations, group, sizes)


def _product(sources: Sources, record: PreparedRecord) -> torch.Tensor:
    """MKL's order for the weight of a linear layer: (rows,)."""
    ((rows,),) = record.numbers
    return torch.ops.mkl._mkl_reorder_linear_weight(sources[0], rows)


def _depthwise(sources: Sources, record: PreparedRecord) -> torch.Tensor:
    """A weight [C, 1, kh, kw] with its channels innermost in memory."""
    (weight,) = sources
    assert weight is not None
    return weight.permute(2, 3, 1, 0).contiguous().permute(3, 2, 0, 1)


def _pointwise(sources: Sources, record: PreparedRecord) -> torch.Tensor:
    """A weight [K, C, 1, 1] as panels [ceil(K / 32), C, 32], filled up with zeros."""
    (weight,) = sources
    assert weight is not None
    matrix = weight.flatten(1)
    padded = torch.nn.functional.pad(matrix, (0, 0, 0, -matrix.shape[0] % _PANEL))
    return padded.unflatten(0, (-1, _PANEL)).transpose(1, 2).contiguous()


def _gates(sources: Sources, record: PreparedRecord) -> torch.Tensor:
    """Rows of an LSTM's weights or biases, from ONNX's order of gates (i, o, f, c) to (i, f, c, o)."""
    (weight,) = sources
    assert weight is not None
    ((gates,),) = record.numbers  # in all along the rows: four of a weight, eight of two biases
    apart = weight.unflatten(1, (gates // 4, 4, -1))
    return apart[:, :, [0, 2, 3, 1]].flatten(1, 3).contiguous()


def _folded_weight(sources: Sources, record: PreparedRecord) -> torch.Tensor:
    """A convolution's weight times the scale of a batch norm: W, B, scale, shift, mean, variance; epsilon."""
    weight, factors = sources[0], _factors(sources, record)
    assert weight is not None
    columns = (-1, *(1 for _ in weight.shape[1:]))
    return (weight.double() * factors.reshape(columns)).to(weight.dtype).contiguous()


def _folded_bias(sources: Sources, record: PreparedRecord) -> torch.Tensor:
    """What is added behind such a weight."""
    weight, bias, _, shift, mean, _ = sources
    assert weight is not None
    assert shift is not None
    assert mean is not None
    offset = -mean.double() if bias is None else bias.double() - mean.double()
    return (offset * _factors(sources, record) + shift.double()).to(weight.dtype).contiguous()


def _factors(sources: Sources, record: PreparedRecord) -> torch.Tensor:
    _, _, scale, _, _, variance = sources
    assert scale is not None
    assert variance is not None
    (epsilon,) = record.reals
    return scale.double() / torch.sqrt(variance.double() + epsilon)


def _limit(sources: Sources, record: PreparedRecord) -> torch.Tensor:
    """The magnitude up to which what is checked overflows nowhere: weight and bias of each convolution.

    Numbers: a row for each array, (0,) for one that is checked, (1, source of the weight, operand, added
    array or -1) for what a convolution gives, in an order in which operands come first; each bound is a
    linear function of the limit, since |y| <= max(sum |w|) |x| + max |b|. Reals: for each row the bound that
    its activation gives it, or infinity. The limit is negative where a weight or a bound is not finite.
    """
    bounds: list[tuple[float, float]] = []
    limit = _LARGEST
    for row, capped in zip(record.numbers, record.reals, strict=True):
        if row[0] == 0:
            bounds.append((1.0, 0.0))
            continue
        _, place, operand, added = row
        weight, bias = sources[place], sources[place + 1]
        assert weight is not None
        gain = float(weight.abs().flatten(1).sum(1, dtype=torch.float64).max())
        shift = 0.0 if bias is None else float(bias.abs().max())
        slope, offset = gain * bounds[operand][0], gain * bounds[operand][1] + shift
        if added >= 0:
            slope, offset = slope + bounds[added][0], offset + bounds[added][1]
        if not offset < _LARGEST or not math.isfinite(slope):
            return torch.tensor([-1.0])
        limit = min(limit, (_LARGEST - offset) / slope) if slope > 0 else limit
        bounds.append((slope, offset) if math.isinf(capped) else (0.0, capped))
    return torch.tensor([limit], dtype=torch.float32)


def _fingerprint(sources: Sources, record: PreparedRecord) -> torch.Tensor:
    """A number of all bytes of the weights, by which a program finds out whether they are others by now."""
    number = launcher.fingerprint([source for source in sources if source is not None])
    return torch.tensor([number - (1 << 64) if number >> 63 else number])


_FUNCTIONS: dict[str, Function] = {
    "convolution": _convolution,
    "product": _product,
    "depthwise": _depthwise,
    "pointwise": _pointwise,
    "gates": _gates,
    "folded_weight": _folded_weight,
    "folded_bias": _folded_bias,
    "limit": _limit,
    "fingerprint": _fingerprint,
    **OPERATORS,
}
