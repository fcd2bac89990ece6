"""What a kernel does, as its name tells: what vendors and frameworks call theirs, as patterns."""

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
