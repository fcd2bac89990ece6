// ATen operators as generated drivers call them: torch's stable C ABI on plain pointers, with status codes.
#pragma once

#include <time.h>

#include <cmath>

#include <daceml/aten_call.h>
#include <daceml/aten_gradients.h>
#include <daceml/aten_normalization.h>
#include <daceml/aten_order.h>
#include <daceml/aten_random.h>
#include <daceml/aten_training.h>

namespace daceml {

// Adds the time until the end of the scope to one step; on a device, until the device has done it.
class StepTimer {
 public:
  StepTimer(daceml_call* call, int step)
      : call_(call), slot_(call->step_us == nullptr ? nullptr : call->step_us + step) {
    if (slot_ != nullptr) start_us_ = now_us();
  }
  ~StepTimer() {
    if (slot_ == nullptr) return;
    finish(call_);
    *slot_ += now_us() - start_us_;
  }

 private:
  // C's clock: <chrono> takes longer to compile than all the rest of a driver.
  static double now_us() {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return 1e6 * static_cast<double>(now.tv_sec) + 1e-3 * static_cast<double>(now.tv_nsec);
  }

  daceml_call* call_;
  double* slot_;
  double start_us_ = 0;
};

namespace aten {

inline int32_t mm_out(daceml_call* call, AtenTensorHandle out, AtenTensorHandle a, AtenTensorHandle b) {
  DACEML_TRY(call, DACEML_ATEN(mm_out)(out, a, b), "aten::mm failed");
  return 0;
}

inline int32_t addmm_out(daceml_call* call, AtenTensorHandle out, AtenTensorHandle c, AtenTensorHandle a,
                         AtenTensorHandle b, double beta, double alpha) {
  DACEML_TRY(call, DACEML_ATEN(addmm_out)(out, c, a, b, beta, alpha), "aten::addmm failed");
  return 0;
}

inline int32_t bmm_out(daceml_call* call, AtenTensorHandle out, AtenTensorHandle a, AtenTensorHandle b) {
  DACEML_TRY(call, DACEML_ATEN(bmm_out)(out, a, b), "aten::bmm failed");
  return 0;
}

inline int32_t convolution(daceml_call* call, Fresh& result, AtenTensorHandle x, AtenTensorHandle w,
                           AtenTensorHandle bias, int64_t rank, const int64_t* strides, const int64_t* pads,
                           const int64_t* dilations, int32_t transposed, const int64_t* output_padding,
                           int64_t group) {
  AtenTensorHandle y = nullptr;
  DACEML_TRY(call,
             DACEML_ATEN(convolution)(x, w, bias == nullptr ? nullptr : &bias, strides, rank, pads, rank, dilations,
                                        rank, transposed, output_padding, rank, group, &y),
             "aten::convolution failed");
  return result.take(call, y);
}

// Cumulative sums along a dimension, in the operand's own type.
inline int32_t cumsum(daceml_call* call, Fresh& result, AtenTensorHandle x, int64_t dim) {
  int32_t type = 0;
  AtenTensorHandle y = nullptr;
  DACEML_TRY(call, aoti_torch_get_dtype(x, &type) || DACEML_ATEN(cumsum)(x, dim, &type, &y),
             "aten::cumsum failed");
  return result.take(call, y);
}

// Whether a bag looks up what its table does not have, or offsets do not ascend from 0.
template <typename T>
inline int32_t bag_outside(daceml_call* call, const T* rows, const T* starts, int64_t extent, int64_t count,
                           int64_t bags) {
  return positions_outside(call, rows, count, 0, 1, 0, extent) ||
         positions_outside(call, starts, bags, 0, 1, 0, count + 1) || starts_descend(call, starts, bags);
}
inline int32_t bag_outside(daceml_call* call, AtenTensorHandle weight, AtenTensorHandle indices,
                           AtenTensorHandle offsets) {
  void *rows = nullptr, *starts = nullptr;
  int64_t extent = 0, count = 0, bags = 0;
  int32_t type = 0;
  if (aoti_torch_get_data_ptr(indices, &rows) || aoti_torch_get_data_ptr(offsets, &starts) ||
      aoti_torch_get_size(weight, 0, &extent) || aoti_torch_get_numel(indices, &count) ||
      aoti_torch_get_numel(offsets, &bags) || aoti_torch_get_dtype(indices, &type)) {
    return 1;
  }
  return type == aoti_torch_dtype_int64()
             ? bag_outside(call, static_cast<const int64_t*>(rows), static_cast<const int64_t*>(starts), extent, count,
                           bags)
             : bag_outside(call, static_cast<const int32_t*>(rows), static_cast<const int32_t*>(starts), extent, count,
                           bags);
}

// Sums of the rows that `indices` name, a bag from each offset to the next; positions are checked before use.
inline int32_t embedding_bag(daceml_call* call, Fresh& result, AtenTensorHandle weight, AtenTensorHandle indices,
                             AtenTensorHandle offsets) {
  DACEML_TRY(call, bag_outside(call, weight, indices, offsets),
             "an index of an embedding bag is outside its table, or offsets are not ascending from 0");
  AtenTensorHandle out[4] = {};
  DACEML_TRY(call,
             DACEML_ATEN(_embedding_bag_forward_only)(weight, indices, offsets, 0, 0, 0, nullptr, 0, -1, &out[0],
                                                        &out[1], &out[2], &out[3]),
             "aten::_embedding_bag_forward_only failed");
  for (int i = 1; i < 4; ++i) {
    if (out[i] != nullptr) aoti_torch_delete_tensor_object(out[i]);
  }
  return result.take(call, out[0]);
}

#ifndef DACEML_ON_CUDA  // torch has other kernels for it there, and programs their own
// Attention over [batch, heads, length, features]; a missing mask is a null handle, a scale of NaN means 1/sqrt(features).
inline int32_t attention(daceml_call* call, Fresh& result, AtenTensorHandle q, AtenTensorHandle k,
                         AtenTensorHandle v, AtenTensorHandle mask, int32_t causal, double scale) {
  AtenTensorHandle y = nullptr;
  AtenTensorHandle logsumexp = nullptr;
  DACEML_TRY(call,
             DACEML_ATEN(_scaled_dot_product_flash_attention_for_cpu)(
                 q, k, v, 0.0, causal, mask == nullptr ? nullptr : &mask, std::isnan(scale) ? nullptr : &scale, &y,
                 &logsumexp),
             "aten::_scaled_dot_product_flash_attention_for_cpu failed");
  aoti_torch_delete_tensor_object(logsumexp);
  return result.take(call, y);
}

#endif

}  // namespace aten
}  // namespace daceml
