"""Batch, layer, group, instance and root-mean-square normalisation."""

from __future__ import annotations

import functools
import inspect
import math
from typing import Any

import onnx_ir as ir

from daceml.frontend.onnx_export.translations import Translation, UnsupportedError, translates
from daceml.frontend.onnx_export.translations.emit import Value, cast, full, is_static, op, sizes_of, typed
from daceml.frontend.onnx_export.translations.precision import HALVES


def _affine(value: Value | None, number: float, shape: list[int], like: Value) -> Value:
    """A scale or bias; torch leaves out what ONNX requires."""
    return full(shape, number, like.dtype or ir.DataType.FLOAT) if value is None else value


def _in_the_type_of_weights(translation: Translation) -> Translation:
    """Half inputs under wider weights, as autocast leaves them: computed wide, given in the input's type."""
    signature = inspect.signature(translation)

    @functools.wraps(translation)
    def translate(*args: Any, **kwargs: Any) -> Any:
        given = signature.bind(*args, **kwargs).arguments
        input = given["input"]
        parameters = [given.get(name) for name in ("weight", "bias", "running_mean", "running_var")]
        kinds = {value.dtype for value in parameters if value is not None}
        if not kinds or kinds == {input.dtype} or input.dtype not in HALVES:
            return translation(*args, **kwargs)
        (wide, *mixed) = kinds
        if mixed or wide is None:
            raise UnsupportedError(f"a normalisation whose parameters are of several types: {kinds}")
        found = translation(**{**given, "input": cast(input, wide)})
        y, *statistics = found if isinstance(found, tuple) else (found,)
        y = op.Cast(typed(y, input, dtype=wide), to=input.dtype)
        return (y, *statistics) if statistics else y

    return translate


def _unbiased(variance: Value, previous: Value, input: Value, kept: float) -> Value:
    """torch's running variance from ONNX's, which takes the population variance.

    ONNX gives r = kept old + (1 - kept) p; torch wants kept old + (1 - kept) k p with k = n / (n - 1):
    that is k r + kept (1 - k) old. Half types can hold neither a large n nor its k: float32 for them.
    """
    dtype = variance.dtype or ir.DataType.FLOAT
    if dtype in HALVES:
        wide = _unbiased(cast(variance, ir.DataType.FLOAT), cast(previous, ir.DataType.FLOAT), input, kept)
        return op.Cast(typed(wide, variance, dtype=ir.DataType.FLOAT), to=dtype)
    batch, channels, *spatial = sizes_of(input)
    counted = [batch, *spatial]
    if is_static(counted):
        n = math.prod(counted)
        k = n / (n - 1) if n > 1 else math.nan
        scaled = typed(op.Mul(variance, k), variance)
        return op.Add(scaled, typed(op.Mul(previous, kept * (1 - k)), variance))
    # a symbolic batch: n = Size(x) / channels at run time
    elements = typed(op.Size(input), dtype=ir.DataType.INT64, shape=())
    n = cast(typed(op.Div(elements, channels), dtype=ir.DataType.INT64, shape=()), dtype)
    k = typed(op.Div(n, typed(op.Sub(n, 1.0), n)), n)
    share = typed(op.Mul(typed(op.Sub(1.0, k), n), kept), n)
    return op.Add(typed(op.Mul(variance, k), variance), typed(op.Mul(previous, share), variance))


def _train(
    input: Value,
    weight: Value | None,
    bias: Value | None,
    running_mean: Value | None,
    running_var: Value | None,
    momentum: float,
    eps: float,
) -> tuple[Value, Value | None, Value | None]:
    """Normalise by the batch; new running statistics where there are old ones."""
    channels: list[int] = [sizes_of(input)[1]]  # pyright: ignore[reportAssignmentType]
    like = input if weight is None else weight
    kept = 1.0 - momentum
    y, mean, variance = op.BatchNormalization(
        input,
        _affine(weight, 1.0, channels, like),
        _affine(bias, 0.0, channels, like),
        _affine(running_mean, 0.0, channels, like),
        _affine(running_var, 1.0, channels, like),
        epsilon=eps,
        momentum=kept,
        training_mode=1,
    )
    if running_mean is None or running_var is None:
        for statistic in (mean, variance):
            typed(statistic, dtype=like.dtype, shape=channels)
        return y, None, None
    typed(mean, running_mean)
    return y, mean, _unbiased(typed(variance, running_var), running_var, input, kept)


@translates("aten.batch_norm.default")
def batch_norm(
    input: Value,
    weight: Value | None,
    bias: Value | None,
    running_mean: Value | None,
    running_var: Value | None,
    training: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool = True,
) -> Value:
    if training or running_mean is None or running_var is None:
        return _train(input, weight, bias, running_mean, running_var, momentum, eps)[0]
    channels: list[int] = [sizes_of(input)[1]]  # pyright: ignore[reportAssignmentType]
    scale = _affine(weight, 1.0, channels, running_mean)
    shift = _affine(bias, 0.0, channels, running_mean)
    return op.BatchNormalization(input, scale, shift, running_mean, running_var, epsilon=eps)


def _own_statistics(input: Value, like: Value, eps: float) -> tuple[Value, Value]:
    """Mean of the batch, and the inverse of its standard deviation, for each channel."""
    x = cast(input, like.dtype or ir.DataType.FLOAT)
    sizes = sizes_of(x)
    axes = [axis for axis in range(len(sizes)) if axis != 1]
    kept = [size if axis == 1 else 1 for axis, size in enumerate(sizes)]
    mean = typed(op.ReduceMean(x, axes, keepdims=1), x, shape=kept)
    distance = typed(op.Sub(x, mean), x)
    variance = typed(op.ReduceMean(typed(op.Mul(distance, distance), x), axes, keepdims=1), x, shape=kept)
    inverse = typed(
        op.Reciprocal(typed(op.Sqrt(typed(op.Add(variance, eps), variance)), x, shape=kept)), mean
    )
    return op.Reshape(mean, [-1]), op.Reshape(inverse, [-1])


def _nothing(like: Value) -> Value:
    """What torch's kernel for the CPU gives where it takes no statistics."""
    return full((0,), 0.0, like.dtype or ir.DataType.FLOAT)


@translates("aten.native_batch_norm.default")
def native_batch_norm(
    input: Value,
    weight: Value | None,
    bias: Value | None,
    running_mean: Value | None,
    running_var: Value | None,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[Value, Value, Value]:
    like = next((value for value in (weight, running_mean) if value is not None), input)
    if not training:
        y = batch_norm(input, weight, bias, running_mean, running_var, False, momentum, eps)
        return y, _nothing(like), _nothing(like)
    if running_mean is not None:
        raise UnsupportedError("batch normalisation that updates statistics, a change that its schema hides")
    y = _train(input, weight, bias, None, None, momentum, eps)[0]
    return y, *_own_statistics(input, like, eps)


@translates("aten._native_batch_norm_legit_functional.default")
def batch_norm_functional(
    input: Value,
    weight: Value | None,
    bias: Value | None,
    running_mean: Value,
    running_var: Value,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[Value, Value | None, Value | None, Value | None, Value | None]:
    like = running_mean if weight is None else weight
    if not training:
        y = batch_norm(input, weight, bias, running_mean, running_var, False, momentum, eps)
        mean, variance = op.Identity(running_mean), op.Identity(running_var)
        return y, _nothing(like), _nothing(like), mean, variance
    y, mean, variance = _train(input, weight, bias, running_mean, running_var, momentum, eps)
    return y, *_own_statistics(input, like, eps), mean, variance


@translates("aten._native_batch_norm_legit_no_training.default")
def batch_norm_no_training(
    input: Value,
    weight: Value | None,
    bias: Value | None,
    running_mean: Value,
    running_var: Value,
    momentum: float,
    eps: float,
) -> tuple[Value, Value, Value]:
    y = batch_norm(input, weight, bias, running_mean, running_var, False, momentum, eps)
    like = running_mean if weight is None else weight
    return y, _nothing(like), _nothing(like)


@translates("aten._native_batch_norm_legit.no_stats")
def batch_norm_no_stats(
    input: Value, weight: Value | None, bias: Value | None, training: bool, momentum: float, eps: float
) -> tuple[Value, Value, Value]:
    y = _train(input, weight, bias, None, None, momentum, eps)[0]
    return y, *_own_statistics(input, input if weight is None else weight, eps)


@translates("aten.layer_norm.default")
@_in_the_type_of_weights
def layer_norm(
    input: Value,
    normalized_shape: list[int],
    weight: Value | None = None,
    bias: Value | None = None,
    eps: float = 1e-5,
    cudnn_enable: bool = True,
) -> Value:
    scale = _affine(weight, 1.0, normalized_shape, input)
    return op.LayerNormalization(input, scale, bias, axis=-len(normalized_shape), epsilon=eps)[0]


@translates("aten.group_norm.default")
@_in_the_type_of_weights
def group_norm(
    input: Value,
    num_groups: int,
    weight: Value | None = None,
    bias: Value | None = None,
    eps: float = 1e-5,
    cudnn_enabled: bool = True,
) -> Value:
    channels: list[int] = [sizes_of(input)[1]]  # pyright: ignore[reportAssignmentType]
    scale, shift = _affine(weight, 1.0, channels, input), _affine(bias, 0.0, channels, input)
    return op.GroupNormalization(input, scale, shift, num_groups=num_groups, epsilon=eps)


@translates("aten.instance_norm.default")
@_in_the_type_of_weights
def instance_norm(
    input: Value,
    weight: Value | None,
    bias: Value | None,
    running_mean: Value | None,
    running_var: Value | None,
    use_input_stats: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool,
) -> Value:
    if not use_input_stats:
        return batch_norm(input, weight, bias, running_mean, running_var, False, momentum, eps)
    if running_mean is not None:
        raise UnsupportedError(
            "instance normalisation that updates statistics, a change that torch.export does not record"
        )
    channels: list[int] = [sizes_of(input)[1]]  # pyright: ignore[reportAssignmentType]
    scale, shift = _affine(weight, 1.0, channels, input), _affine(bias, 0.0, channels, input)
    return op.InstanceNormalization(input, scale, shift, epsilon=eps)


@translates("aten.rms_norm.default")
@_in_the_type_of_weights
def rms_norm(
    input: Value, normalized_shape: list[int], weight: Value | None = None, eps: float | None = None
) -> Value:
    if eps is None:
        eps = {ir.DataType.FLOAT16: 2**-10, ir.DataType.BFLOAT16: 2**-7, ir.DataType.DOUBLE: 2**-52}.get(
            input.dtype or ir.DataType.FLOAT, 2**-23
        )
    scale = _affine(weight, 1.0, normalized_shape, input)
    return op.RMSNormalization(input, scale, axis=-len(normalized_shape), epsilon=eps)
