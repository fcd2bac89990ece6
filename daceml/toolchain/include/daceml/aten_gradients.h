// Gradients of matrix products, convolutions and pooling.
#pragma once

#include <daceml/aten_call.h>

namespace daceml {
namespace aten {

// The sum of a batch of products; `ignored` is any tensor that could be added to it.
inline int32_t addbmm(daceml_call* call, Fresh& result, AtenTensorHandle ignored, AtenTensorHandle a,
                      AtenTensorHandle b) {
  return single(call, result, "aten::addbmm failed",
                [&](auto* y) { return DACEML_ATEN(addbmm)(ignored, a, b, 0.0, 1.0, y); });
}

// Two products of batches of matrices.
inline int32_t bmm_pair_out(daceml_call* call, AtenTensorHandle first, AtenTensorHandle a, AtenTensorHandle b,
                            AtenTensorHandle second, AtenTensorHandle c, AtenTensorHandle d) {
  DACEML_TRY(call, DACEML_ATEN(bmm_out)(first, a, b) || DACEML_ATEN(bmm_out)(second, c, d), "aten::bmm failed");
  return 0;
}

// The gradients wanted: those with a place to go to.
inline int32_t convolution_backward(daceml_call* call, Fresh* dx, Fresh* dw, Fresh* dbias, AtenTensorHandle dy,
                                    AtenTensorHandle x, AtenTensorHandle w, int64_t rank, const int64_t* strides,
                                    const int64_t* pads, const int64_t* dilations, int32_t transposed,
                                    const int64_t* output_padding, int64_t group) {
  Fresh* const targets[3] = {dx, dw, dbias};
  const int32_t mask[3] = {dx != nullptr, dw != nullptr, dbias != nullptr};
  int64_t channels = 0;
  DACEML_TRY(call, aoti_torch_get_size(dy, 1, &channels), "torch could not describe an operand");
  const int64_t* bias_sizes = &channels;
  AtenTensorHandle found[3] = {};
  DACEML_TRY(call,
             DACEML_ATEN(convolution_backward)(dy, x, w, &bias_sizes, 1, strides, rank, pads, rank, dilations, rank,
                                                 transposed, output_padding, rank, group, mask, 3, &found[0],
                                                 &found[1], &found[2]),
             "aten::convolution_backward failed");
  int32_t failed = 0;
  for (int i = 0; i < 3; ++i) {
    if (targets[i] != nullptr && !failed) {
      failed = targets[i]->take(call, found[i]);
    } else if (found[i] != nullptr) {
      aoti_torch_delete_tensor_object(found[i]);
    }
  }
  return failed;
}

inline int32_t average_pool_backward(daceml_call* call, Fresh& result, AtenTensorHandle dy, AtenTensorHandle x,
                                     int64_t rank, const int64_t* kernel, const int64_t* strides, const int64_t* pads,
                                     int32_t ceil_mode, int32_t count_include_pad) {
  const auto backward = rank == 2 ? DACEML_ATEN(avg_pool2d_backward) : DACEML_ATEN(avg_pool3d_backward);
  return single(call, result, "aten::avg_pool backward failed", [&](auto* y) {
    return backward(dy, x, kernel, rank, strides, rank, pads, rank, ceil_mode, count_include_pad, nullptr, y);
  });
}

}  // namespace aten
}  // namespace daceml
