"""What a kernel or an operator does, as its name tells: what vendors and frameworks call theirs."""

from __future__ import annotations

# Products and convolutions: cuBLAS, CUTLASS, cuDNN, MIOpen, rocBLAS, attention.
COMPUTE = (
    r"gemm|gemv|cutlass|scudnn|cudnn.*(conv|winograd)|winograd|implicit_convolve|conv2d_|convolve|dgrad|wgrad|fprop"
    r"|xmma|hmma|cask_|Cijk_|igemm|miopen.*conv|flash|fmha|attention|cublas"
)
# Those that compute in half precision already, or use tensor cores on it.
HALF = r"h884|h1688|hgemm|fp16|_half|bf16|bfloat16|BFloat16|Half|f16f16|__half|s16816"
ELEMENTWISE = (
    r"elementwise|Pointwise|pointwise|vectorized|unrolled|triton_poi|clamp|relu|threshold|sigmoid|tanh|gelu"
)
NORMALIZATION = (
    r"bn_(fw|bw)|batch_?norm|BatchNorm|layer_?norm|LayerNorm|GroupNorm|group_?norm|RowwiseMoments|rms_?norm"
)
REDUCTION = r"reduce_kernel|reduce_|softmax|SoftMax"
# Products on tensor cores that round float32 to 19 bits.
TF32 = r"tf32|s1688"
FP8 = r"e4m3|e5m2|fp8|float8"
FILL = r"FillFunctor|fill_kernel|memset|zero_"
# Kernels that update many tensors with all steps of an optimizer.
FUSED_OPTIMIZER = (
    r"Fused(Adam|SGD|LAMB|Adagrad|Optimizer)|fused_(adam|sgd)|adam_?functor|multi_tensor_adam|AdamCapturable"
)

# Operators of a framework, in a run without a device and as what led to a kernel.
COMPUTE_OPERATOR = (
    r"conv|(^|::)_?(addmm|mm|bmm|baddbmm|addbmm|addmv|mv|matmul|linear|einsum|scaled_mm|bilinear)\b"
    r"|attention|lstm|gru|rnn|embedding_bag|MmBackward|AddmmBackward|BmmBackward"
)
# Copies over the link to the host, as CUPTI and roctracer name them.
HOST_COPY = r"HtoD|DtoH|HostToDevice|DeviceToHost|Pageable|Pinned"
