// ATen operators as generated drivers call them: torch's stable C ABI on plain pointers, with status codes.
#pragma once

#include <time.h>

#include <daceml/aten_call.h>
#include <daceml/aten_gradients.h>
#include <daceml/aten_normalization.h>
#include <daceml/aten_order.h>
#include <daceml/aten_random.h>
#include <daceml/aten_training.h>

namespace daceml {

// Whether any of the positions `offset, offset + step, ...` of an index array lies outside [lowest, extent).
template <typename T>
inline int32_t positions_outside(const T* positions, int64_t count, int64_t offset, int64_t step, int64_t lowest,
                                 int64_t extent) {
  for (int64_t i = offset; i < count; i += step) {
    const int64_t position = static_cast<int64_t>(positions[i]);
    if (position < lowest || position >= extent) return 1;
  }
  return 0;
}

// Whether starts of segments do not begin with 0, or one is smaller than the one before.
template <typename T>
inline int32_t starts_descend(const T* starts, int64_t count) {
  if (count > 0 && starts[0] != 0) return 1;
  for (int64_t i = 1; i < count; ++i) {
    if (starts[i] < starts[i - 1]) return 1;
  }
  return 0;
}

// Adds the time until the end of the scope to one step.
class StepTimer {
 public:
  StepTimer(daceml_call* call, int step) : slot_(call->step_us == nullptr ? nullptr : call->step_us + step) {
    if (slot_ != nullptr) start_us_ = now_us();
  }
  ~StepTimer() {
    if (slot_ != nullptr) *slot_ += now_us() - start_us_;
  }

 private:
  // C's clock: <chrono> takes longer to compile than all the rest of a driver.
  static double now_us() {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return 1e6 * static_cast<double>(now.tv_sec) + 1e-3 * static_cast<double>(now.tv_nsec);
  }

  double* slot_;
  double start_us_ = 0;
};

namespace aten {

inline int32_t mm_out(daceml_call* call, AtenTensorHandle out, AtenTensorHandle a, AtenTensorHandle b) {
  DACEML_TRY(call, aoti_torch_cpu_mm_out(out, a, b), "aten::mm failed");
  return 0;
}

inline int32_t addmm_out(daceml_call* call, AtenTensorHandle out, AtenTensorHandle c, AtenTensorHandle a,
                         AtenTensorHandle b, double beta, double alpha) {
  DACEML_TRY(call, aoti_torch_cpu_addmm_out(out, c, a, b, beta, alpha), "aten::addmm failed");
  return 0;
}

inline int32_t bmm_out(daceml_call* call, AtenTensorHandle out, AtenTensorHandle a, AtenTensorHandle b) {
  DACEML_TRY(call, aoti_torch_cpu_bmm_out(out, a, b), "aten::bmm failed");
  return 0;
}

inline int32_t convolution(daceml_call* call, Fresh& result, AtenTensorHandle x, AtenTensorHandle w,
                           AtenTensorHandle bias, int64_t rank, const int64_t* strides, const int64_t* pads,
                           const int64_t* dilations, int32_t transposed, const int64_t* output_padding,
                           int64_t group) {
  AtenTensorHandle y = nullptr;
  DACEML_TRY(call,
             aoti_torch_cpu_convolution(x, w, bias == nullptr ? nullptr : &bias, strides, rank, pads, rank, dilations,
                                        rank, transposed, output_padding, rank, group, &y),
             "aten::convolution failed");
  return result.take(call, y);
}

// Cumulative sums along a dimension, in the operand's own type.
inline int32_t cumsum(daceml_call* call, Fresh& result, AtenTensorHandle x, int64_t dim) {
  int32_t type = 0;
  AtenTensorHandle y = nullptr;
  DACEML_TRY(call, aoti_torch_get_dtype(x, &type) || aoti_torch_cpu_cumsum(x, dim, &type, &y),
             "aten::cumsum failed");
  return result.take(call, y);
}

// Sums of the rows that `indices` name, a bag from each offset to the next; positions are checked before use.
inline int32_t embedding_bag(daceml_call* call, Fresh& result, AtenTensorHandle weight, AtenTensorHandle indices,
                             AtenTensorHandle offsets) {
  void *rows = nullptr, *starts = nullptr;
  int64_t extent = 0, count = 0, bags = 0;
  int32_t type = 0;
  DACEML_TRY(call,
             aoti_torch_get_data_ptr(indices, &rows) || aoti_torch_get_data_ptr(offsets, &starts) ||
                 aoti_torch_get_size(weight, 0, &extent) || aoti_torch_get_numel(indices, &count) ||
                 aoti_torch_get_numel(offsets, &bags) || aoti_torch_get_dtype(indices, &type),
             "torch could not describe an operand");
  const auto invalid = [&](const auto* positions, const auto* first) {
    return positions_outside(positions, count, 0, 1, 0, extent) || positions_outside(first, bags, 0, 1, 0, count + 1) ||
           starts_descend(first, bags);
  };
  const bool is_long = type == aoti_torch_dtype_int64();
  DACEML_TRY(call,
             is_long ? invalid(static_cast<const int64_t*>(rows), static_cast<const int64_t*>(starts))
                     : invalid(static_cast<const int32_t*>(rows), static_cast<const int32_t*>(starts)),
             "an index of an embedding bag is outside its table, or offsets are not ascending from 0");
  AtenTensorHandle out[4] = {};
  DACEML_TRY(call,
             aoti_torch_cpu__embedding_bag_forward_only(weight, indices, offsets, 0, 0, 0, nullptr, 0, -1, &out[0],
                                                        &out[1], &out[2], &out[3]),
             "aten::_embedding_bag_forward_only failed");
  for (int i = 1; i < 4; ++i) {
    if (out[i] != nullptr) aoti_torch_delete_tensor_object(out[i]);
  }
  return result.take(call, out[0]);
}

// Attention over [batch, heads, length, features]; a missing mask is a null handle, scale < 0 means 1/sqrt(features).
inline int32_t attention(daceml_call* call, Fresh& result, AtenTensorHandle q, AtenTensorHandle k,
                         AtenTensorHandle v, AtenTensorHandle mask, int32_t causal, double scale) {
  AtenTensorHandle y = nullptr;
  AtenTensorHandle logsumexp = nullptr;
  DACEML_TRY(call,
             aoti_torch_cpu__scaled_dot_product_flash_attention_for_cpu(
                 q, k, v, 0.0, causal, mask == nullptr ? nullptr : &mask, scale < 0 ? nullptr : &scale, &y,
                 &logsumexp),
             "aten::_scaled_dot_product_flash_attention_for_cpu failed");
  aoti_torch_delete_tensor_object(logsumexp);
  return result.take(call, y);
}

}  // namespace aten
}  // namespace daceml
