"""Kinds of kernels, by the names that vendors give them."""

from __future__ import annotations

import pytest

from daceml.profiling.kernel_class import CLASSES, kernel_class

NAMES = {
    "GEMM": [
        "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize64x64x64",
        "volta_sgemm_128x64_nn",
        "Cijk_Alik_Bljk_B_BS_BH_Bias_HA_S_SAV_UserArgs_MT16x16x128_MI16x16x1_SN",
        "nvjet_tst_128x8",
        "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_bf16_256x128_64x3_tn_align2>",
        "void gemv2T_kernel_val<int, int, float>",
        "void cublasLt::splitKreduce_kernel<32, 16>",
    ],
    "convolution": [
        "void implicit_convolve_sgemm<float, float, 128, 6>",
        "volta_scudnn_winograd_128x128_ldg1_ldg4",
        "sm80_xmma_fprop_implicit_gemm_indexed_tf32f32",
        "igemm_fwd_gtcx3_nhwc_bf16_bx0_ex1_bt128x128x32",
        "_ZN2ck16tensor_operation6device37kernel_batched_gemm_xdlops_bwd_weightINS_47GridwiseGemm",
        "void cudnn::cnn::dgrad2d_grouped_direct_kernel",
    ],
    "attention": [
        "void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<64>>",
        "attn_fwd",
        "fmha_cutlassF_bf16",
    ],
    "normalisation": [
        "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<c10::BFloat16, float>",
        "void cudnn::bn_fw_tr_1C11_kernel_NCHW<float>",
        "MIOpenBatchNormFwdTrainSpatial",
    ],
    "elementwise": [
        "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>",
        "triton_poi_fused_add_0",
        "void at::native::elementwise_kernel_manual_unroll<128, 8>",
    ],
    "reduction": [
        "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float>>",
        "triton_red_fused_sum_1",
        "void (anonymous namespace)::softmax_warp_forward<float>",
    ],
    "copy": [
        "void at::native::(anonymous namespace)::CatArrayBatchedCopy<float>",
        "batched_transpose_32x32_half",
        "void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda>",
        "void at::native::(anonymous namespace)::indexSelectLargeIndex<c10::BFloat16>",
    ],
    "collective": ["ncclDevKernel_AllReduce_Sum_f32_RING_LL", "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t"],
    "compiled": ["void daceml::kernel::map_1f3a(float*)", "_ZN6daceml6kernel8map_1f3aEPf"],
    "other": ["my_kernel"],
}


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind, names in NAMES.items() for name in names])
def test_names_of_every_vendor(kind: str, name: str):
    assert kernel_class(name) == kind


def test_every_class_has_an_example():
    assert set(NAMES) == set(CLASSES)


def test_the_operator_tells_products_apart_and_what_names_do_not_say():
    assert kernel_class("volta_sgemm_128x64_nn", "aten::cudnn_convolution") == "convolution"
    assert kernel_class("volta_sgemm_128x64_nn", "aten::addmm") == "GEMM"
    assert kernel_class("my_kernel", "aten::native_layer_norm") == "normalisation"
    assert kernel_class("my_kernel", "aten::_softmax") == "reduction"


def test_a_library_s_name_is_not_what_its_kernels_do():
    assert kernel_class("void fbgemm_gpu::bounds_check_kernel<long>") == "other"
