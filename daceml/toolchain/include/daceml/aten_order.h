// Sorting, scans and searches by torch's kernels: the order of NaN and of equal elements is torch's.
#pragma once

#include <daceml/aten_call.h>

namespace daceml {
namespace aten {

inline int32_t sort(daceml_call* call, Fresh& values, AtenTensorHandle indices, AtenTensorHandle x, int64_t dim,
                    int32_t descending) {
  int32_t stable = 1;
  return pair(call, values, indices, "aten::sort failed",
              [&](auto* v, auto* i) { return DACEML_ATEN(sort_stable)(x, &stable, dim, descending, v, i); });
}

inline int32_t topk(daceml_call* call, Fresh& values, AtenTensorHandle indices, AtenTensorHandle x, int64_t k,
                    int64_t dim, int32_t largest, int32_t sorted) {
  return pair(call, values, indices, "aten::topk failed",
              [&](auto* v, auto* i) { return DACEML_ATEN(topk)(x, k, dim, largest, sorted, v, i); });
}

// The first k in stable order: of equal elements those with the lowest indices.
inline int32_t first_in_order(daceml_call* call, Fresh& values, AtenTensorHandle indices, AtenTensorHandle x,
                              int64_t k, int64_t dim, int32_t largest) {
  return pair(call, values, indices, "aten::sort failed", [&](auto* v, auto* i) {
    int32_t stable = 1;
    AtenTensorHandle all[2] = {nullptr, nullptr};
    if (DACEML_ATEN(sort_stable)(x, &stable, dim, largest, &all[0], &all[1])) return 1;
    int32_t failed = DACEML_ATEN(narrow)(all[0], dim, 0, k, v);
    if (!failed && (failed = DACEML_ATEN(narrow)(all[1], dim, 0, k, i))) aoti_torch_delete_tensor_object(*v);
    aoti_torch_delete_tensor_object(all[0]);
    aoti_torch_delete_tensor_object(all[1]);
    return failed;
  });
}

inline int32_t kthvalue(daceml_call* call, Fresh& values, AtenTensorHandle indices, AtenTensorHandle x, int64_t k,
                        int64_t dim, int32_t keepdim) {
  return pair(call, values, indices, "aten::kthvalue failed",
              [&](auto* v, auto* i) { return DACEML_ATEN(kthvalue)(x, k, dim, keepdim, v, i); });
}

inline int32_t cummax(daceml_call* call, Fresh& values, AtenTensorHandle indices, AtenTensorHandle x, int64_t dim) {
  return pair(call, values, indices, "aten::cummax failed",
              [&](auto* v, auto* i) { return DACEML_ATEN(cummax)(x, dim, v, i); });
}

inline int32_t cummin(daceml_call* call, Fresh& values, AtenTensorHandle indices, AtenTensorHandle x, int64_t dim) {
  return pair(call, values, indices, "aten::cummin failed",
              [&](auto* v, auto* i) { return DACEML_ATEN(cummin)(x, dim, v, i); });
}

inline int32_t cumprod(daceml_call* call, Fresh& result, AtenTensorHandle x, int64_t dim) {
  int32_t type = 0;
  DACEML_TRY(call, aoti_torch_get_dtype(x, &type), "torch could not describe an operand");
  return single(call, result, "aten::cumprod failed", [&](auto* y) { return DACEML_ATEN(cumprod)(x, dim, &type, y); });
}

inline int32_t logcumsumexp(daceml_call* call, Fresh& result, AtenTensorHandle x, int64_t dim) {
  return single(call, result, "aten::logcumsumexp failed",
                [&](auto* y) { return DACEML_ATEN(logcumsumexp)(x, dim, y); });
}

inline int32_t median(daceml_call* call, Fresh& result, AtenTensorHandle x) {
  return single(call, result, "aten::median failed", [&](auto* y) { return DACEML_ATEN(median)(x, y); });
}

inline int32_t median_along(daceml_call* call, Fresh& values, AtenTensorHandle indices, AtenTensorHandle x,
                            int64_t dim, int32_t keepdim) {
  return pair(call, values, indices, "aten::median failed", [&](auto* v, auto* i) {
    AtenTensorHandle operand = nullptr;  // the dispatcher takes its arguments over
    if (aoti_torch_new_tensor_handle(x, &operand)) return 1;
    uint64_t stack[3] = {reinterpret_cast<uint64_t>(operand), static_cast<uint64_t>(dim),
                         static_cast<uint64_t>(keepdim)};
    if (aoti_torch_call_dispatcher("aten::median", "dim", stack)) return 1;
    *v = reinterpret_cast<AtenTensorHandle>(stack[0]);
    *i = reinterpret_cast<AtenTensorHandle>(stack[1]);
    return 0;
  });
}

// Where `values` would go in ascending `boundaries`, which have one dimension or all but the last of `values`.
inline int32_t searchsorted(daceml_call* call, Fresh& result, AtenTensorHandle boundaries, AtenTensorHandle values,
                            int32_t narrow, int32_t right) {
  return single(call, result, "aten::searchsorted failed", [&](auto* y) {
    return DACEML_ATEN(searchsorted_Tensor)(boundaries, values, narrow, right, nullptr, nullptr, y);
  });
}

inline int32_t masked_put(daceml_call* call, Fresh& result, AtenTensorHandle x, AtenTensorHandle mask,
                          AtenTensorHandle values, int32_t accumulate) {
  const AtenTensorHandle* indices[] = {&mask};
  return single(call, result, "aten::index_put failed: as many values as elements that the mask selects, or one",
                [&](auto* y) { return DACEML_ATEN(index_put)(x, indices, 1, values, accumulate, y); });
}

inline int32_t adaptive_max_pool2d(daceml_call* call, Fresh& values, AtenTensorHandle indices, AtenTensorHandle x,
                                   const int64_t* size) {
  return pair(call, values, indices, "aten::adaptive_max_pool2d failed",
              [&](auto* v, auto* i) { return DACEML_ATEN(adaptive_max_pool2d)(x, size, 2, v, i); });
}

inline int32_t distances(daceml_call* call, Fresh& result, AtenTensorHandle a, AtenTensorHandle b, double p) {
  return single(call, result, "aten::_cdist_forward failed",
                [&](auto* y) { return DACEML_ATEN(_cdist_forward)(a, b, p, nullptr, y); });
}

}  // namespace aten
}  // namespace daceml
