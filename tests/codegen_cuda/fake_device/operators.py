"""What stands in for the kernels of torch's CUDA operators: tables, by the names of the operators.

A name stands for all its overloads, and for the forms that write: `add` also for `add_` and `add.out`.
"""

from __future__ import annotations

from tests.codegen_cuda.fake_device import attention, convolutions, embedding_bags, normalization
from tests.codegen_cuda.fake_device.redirect import StandIn


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Nothing runs on the device: they make views and memory, and ask the host alone.
HOST_ALONE = _names("""
    _cudnn_init_dropout_state _fused_sdp_choice _reshape_alias _use_cudnn_ctc_loss alias as_strided
    empty empty_strided is_pinned is_set_to record_stream resize_ set_ unfold view view_as_complex
    view_as_real
""")

# The same operator on the processor: of one element each …
SAME = _names("""
    abs acos acosh add addcdiv addcmul asin asinh atan atan2 atanh bitwise_and bitwise_left_shift
    bitwise_not bitwise_or bitwise_right_shift bitwise_xor ceil celu clamp clamp_max clamp_min complex
    copysign cos cosh deg2rad digamma div elu elu_backward eq erf erfc erfinv exp exp2 expm1 floor
    floor_divide fmax fmin fmod frac ge gelu gelu_backward glu glu_backward gt hardshrink hardsigmoid
    hardsigmoid_backward hardswish hardswish_backward hardtanh hardtanh_backward heaviside huber_loss
    hypot isinf isnan isneginf isposinf le leaky_relu leaky_relu_backward lerp lgamma log log10 log1p
    log2 log_sigmoid_backward log_sigmoid_forward logaddexp logaddexp2 logical_and logical_not
    logical_or logical_xor logit lt maximum minimum mish mish_backward mse_loss mse_loss_backward mul
    nan_to_num ne neg nextafter polar pow prelu _prelu_kernel _prelu_kernel_backward reciprocal relu
    relu6 remainder round rsqrt rsub sgn sigmoid sigmoid_backward sign signbit silu silu_backward sin
    sinc sinh smooth_l1_loss smooth_l1_loss_backward softplus softplus_backward softshrink
    softshrink_backward sqrt square sub tan tanh tanh_backward threshold threshold_backward trunc where
    xlogy
""")
# … filling and moving …
SAME |= _names("""
    arange cat constant_pad_nd eye fill flip gather index_add index_copy index_fill index_select
    linspace masked_fill masked_scatter put roll scatter scatter_add scatter_reduce take tril
    tril_indices triu triu_indices zero index_put _index_put_impl_ _unsafe_index _unsafe_index_put
""")
# … sums and orders …
SAME |= _names("""
    all amax amin aminmax any argmax argmin argsort cummax cummin cumprod cumsum _cummax_helper
    _cummin_helper kthvalue linalg_vector_norm _log_softmax _log_softmax_backward_data logcumsumexp
    _logcumsumexp logsumexp max mean median min mode nanmedian nansum norm prod searchsorted bucketize
    _softmax _softmax_backward_data sort std std_mean sum topk var var_mean
""")
# … products, convolutions, normalization, pooling, looking up …
SAME |= _names("""
    _addmm_activation addbmm addmm addmv addr baddbmm bmm dot mm mv vdot convolution
    convolution_backward batch_norm_elemt
    _native_batch_norm_legit _batch_norm_with_update native_group_norm native_group_norm_backward
    _adaptive_avg_pool2d _adaptive_avg_pool2d_backward
    _adaptive_avg_pool3d _adaptive_avg_pool3d_backward adaptive_max_pool2d adaptive_max_pool2d_backward
    avg_pool2d avg_pool2d_backward avg_pool3d avg_pool3d_backward max_pool2d_with_indices
    max_pool2d_with_indices_backward max_pool3d_with_indices max_pool3d_with_indices_backward
    upsample_bicubic2d upsample_bicubic2d_backward upsample_bilinear2d upsample_bilinear2d_backward
    upsample_nearest1d upsample_nearest1d_backward upsample_nearest2d upsample_nearest2d_backward
    embedding_dense_backward _embedding_bag_backward
    _embedding_bag_dense_backward nll_loss_backward nll_loss_forward nll_loss2d_backward
    nll_loss2d_forward binary_cross_entropy binary_cross_entropy_backward _cdist_backward _cdist_forward
    native_dropout_backward grid_sampler_2d grid_sampler_2d_backward
""")
# … optimizers.
SAME |= _names("""
    _foreach_abs _foreach_add _foreach_addcdiv _foreach_addcmul _foreach_copy_ _foreach_div
    _foreach_lerp _foreach_maximum _foreach_mul _foreach_neg _foreach_norm _foreach_pow
    _foreach_reciprocal _foreach_sqrt _foreach_sub _foreach_zero_ _fused_adam _fused_adamw _fused_sgd
""")

# The host waits for them.
TO_HOST = _names("""
    _local_scalar_dense equal is_nonzero masked_select nonzero unique_dim _unique2 unique_consecutive
""")

# Random numbers, from a generator of the processor that follows the state of the device's.
DRAWN = _names("""
    bernoulli exponential geometric log_normal multinomial normal normal_functional random randint
    randperm rand randn uniform
""")

# Operators that only a device has, by functions of tensors of the processor.
OWN = {
    "index": StandIn(masks=True),
    "_embedding_bag": StandIn(function=embedding_bags.embedding_bag),
    "_embedding_bag_forward_only": StandIn(function=embedding_bags.embedding_bag),
    "native_batch_norm": StandIn(function=normalization.batch_norm),
    "native_batch_norm_backward": StandIn(function=normalization.batch_norm_backward),
    "native_layer_norm": StandIn(function=normalization.layer_norm),
    "native_layer_norm_backward": StandIn(function=normalization.layer_norm_backward),
    "native_dropout": StandIn(function=convolutions.dropout, draws=True),
    "cudnn_batch_norm": StandIn(function=convolutions.batch_norm),
    "cudnn_batch_norm_backward": StandIn(function=convolutions.batch_norm_backward),
    "cudnn_convolution": StandIn(function=convolutions.convolution),
    "cudnn_convolution_relu": StandIn(function=convolutions.convolution_relu),
    "cudnn_convolution_add_relu": StandIn(function=convolutions.convolution_add_relu),
    "_scaled_dot_product_cudnn_attention": StandIn(function=attention.cudnn),
    "_scaled_dot_product_cudnn_attention_backward": StandIn(function=attention.cudnn_backward),
    "_scaled_dot_product_flash_attention": StandIn(function=attention.flash),
    "_scaled_dot_product_flash_attention_backward": StandIn(function=attention.flash_backward),
    "_scaled_dot_product_efficient_attention": StandIn(function=attention.efficient),
    "_scaled_dot_product_efficient_attention_backward": StandIn(function=attention.efficient_backward),
}

STAND_INS: dict[str, StandIn] = {
    **dict.fromkeys(SAME, StandIn()),
    **dict.fromkeys(TO_HOST, StandIn(to_host=True)),
    **dict.fromkeys(DRAWN, StandIn(draws=True)),
    **OWN,
}


def stand_in_of(name: str) -> StandIn | None:
    """That of an operator by its name without an overload, `add_` as `add`; None where there is none."""
    return STAND_INS.get(name) or STAND_INS.get(name.removesuffix("_"))
