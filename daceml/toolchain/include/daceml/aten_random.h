// Random numbers from torch's default generator: torch.manual_seed sets them, and eager PyTorch draws the same.
#pragma once

#include <daceml/aten_call.h>

namespace daceml {
namespace aten {

// Fills `out` with what an operator draws for a tensor like it.
template <typename Operator>
inline int32_t fill(daceml_call* call, AtenTensorHandle out, const char* message, Operator&& operation) {
  AtenTensorHandle y = nullptr;
  DACEML_TRY(call, operation(&y), message);
  const int32_t failed = aoti_torch_copy_(out, y, 0);
  aoti_torch_delete_tensor_object(y);
  DACEML_TRY(call, failed, message);
  return 0;
}

inline int32_t uniform(daceml_call* call, AtenTensorHandle out, double low, double high) {
  return fill(call, out, "aten::uniform failed",
              [&](auto* y) { return DACEML_ATEN(uniform)(out, low, high, nullptr, y); });
}

inline int32_t normal(daceml_call* call, AtenTensorHandle out, double mean, double deviation) {
  return fill(call, out, "aten::normal failed",
              [&](auto* y) { return DACEML_ATEN(normal_functional)(out, mean, deviation, nullptr, y); });
}

inline int32_t exponential(daceml_call* call, AtenTensorHandle out, double rate) {
  return fill(call, out, "aten::exponential failed",
              [&](auto* y) { return DACEML_ATEN(exponential)(out, rate, nullptr, y); });
}

inline int32_t bernoulli(daceml_call* call, AtenTensorHandle out, AtenTensorHandle probabilities) {
  DACEML_TRY(call, DACEML_ATEN(bernoulli__Tensor)(out, probabilities, nullptr), "aten::bernoulli failed");
  return 0;
}

inline int32_t bernoulli_of(daceml_call* call, AtenTensorHandle out, double probability) {
  // asking for the generator's state costs as much as a thousand draws
  constexpr int64_t least = 2048;
  int64_t count = 0, bytes = 0;
  int32_t dtype = 0;
  bool dense = false;
  void* pointer = nullptr;
  DACEML_TRY(call,
             aoti_torch_get_numel(out, &count) || aoti_torch_is_contiguous(out, &dense) ||
                 aoti_torch_get_dtype(out, &dtype) || aoti_torch_get_data_ptr(out, &pointer),
             "the result of aten::bernoulli is no tensor");
  if (dtype == aoti_torch_dtype_bool()) bytes = 1;
  if (dtype == aoti_torch_dtype_float32()) bytes = 4;
  if (dtype == aoti_torch_dtype_float64()) bytes = 8;
  const bool ours = call->bernoulli != nullptr && count >= least && dense && bytes > 0;
  if (ours && call->bernoulli(pointer, bytes, count, probability) == 0) return 0;
  DACEML_TRY(call, DACEML_ATEN(bernoulli__float)(out, probability, nullptr), "aten::bernoulli failed");
  return 0;
}

inline int32_t dropout(daceml_call* call, Fresh& result, AtenTensorHandle mask, AtenTensorHandle x, double p) {
  int32_t train = 1;
  return pair(call, result, mask, "aten::native_dropout failed",
              [&](auto* y, auto* m) { return DACEML_ATEN(native_dropout)(x, p, &train, y, m); });
}

inline int32_t randint(daceml_call* call, AtenTensorHandle out, int64_t low, int64_t high) {
  int64_t rank = 0;
  int64_t* sizes = nullptr;
  DACEML_TRY(call,
             aoti_torch_get_dim(out, &rank) || aoti_torch_get_sizes(out, &sizes) ||
                 DACEML_ATEN(randint_low_out)(out, low, high, sizes, rank),
             "aten::randint failed");
  return 0;
}

inline int32_t randperm(daceml_call* call, Fresh& result, int64_t count) {
  int32_t type = aoti_torch_dtype_int64();
  return single(call, result, "aten::randperm failed", [&](auto* y) {
    int32_t where = device_type();
    return DACEML_ATEN(randperm)(count, &type, nullptr, &where, call->device, nullptr, y);
  });
}

inline int32_t multinomial(daceml_call* call, Fresh& result, AtenTensorHandle weights, int64_t count,
                           int32_t replacement) {
  return single(call, result, "aten::multinomial failed", [&](auto* y) {
    AtenTensorHandle operand = nullptr;  // the dispatcher takes its arguments over
    if (aoti_torch_new_tensor_handle(weights, &operand)) return 1;
    uint64_t stack[4] = {reinterpret_cast<uint64_t>(operand), static_cast<uint64_t>(count),
                         static_cast<uint64_t>(replacement), 0};
    if (aoti_torch_call_dispatcher("aten::multinomial", "", stack)) return 1;
    *y = reinterpret_cast<AtenTensorHandle>(stack[0]);
    return 0;
  });
}

}  // namespace aten
}  // namespace daceml
