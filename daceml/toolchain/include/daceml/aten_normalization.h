// Normalisations with their statistics, softmax, and the gradients of both.
#pragma once

#include <daceml/aten_dispatch.h>

namespace daceml {
namespace aten {

// The gradients wanted of three operands: those with a place to go to.
struct Wanted {
  Wanted(Fresh* a, Fresh* b, Fresh* c) : targets{a, b, c}, mask{a != nullptr, b != nullptr, c != nullptr} {}
  // What an operator of three results left on the stack.
  int32_t deliver(daceml_call* call, const Stack& stack) const {
    const AtenTensorHandle found[3] = {stack.result(0), stack.result(1), stack.result(2)};
    return aten::deliver(call, targets, found, 3);
  }

  Fresh* const targets[3];
  const bool mask[3];
};

inline int32_t layer_norm_backward(daceml_call* call, Fresh* dx, Fresh* dscale, Fresh* dbias, AtenTensorHandle dy,
                                   AtenTensorHandle x, AtenTensorHandle mean, AtenTensorHandle inverse,
                                   AtenTensorHandle scale) {
  const Wanted wanted(dx, dscale, dbias);
  int64_t rank = 0;
  int64_t* sizes = nullptr;
  DACEML_TRY(call, aoti_torch_get_dim(scale, &rank) || aoti_torch_get_sizes(scale, &sizes),
             "torch could not describe an operand");
  Stack stack;
  // torch asks for a bias only to know whether there is one: the scale has its shape
  stack.tensor(dy).tensor(x).list(sizes, rank).tensor(mean).tensor(inverse).optional(scale).optional(scale);
  DACEML_TRY(call, stack.list(wanted.mask, 3).call("aten::native_layer_norm_backward"),
             "aten::native_layer_norm_backward failed");
  return wanted.deliver(call, stack);
}

inline int32_t group_norm_backward(daceml_call* call, Fresh* dx, Fresh* dscale, Fresh* dbias, AtenTensorHandle dy,
                                   AtenTensorHandle x, AtenTensorHandle mean, AtenTensorHandle inverse,
                                   AtenTensorHandle scale, int64_t groups) {
  const Wanted wanted(dx, dscale, dbias);
  int64_t batch = 0, channels = 0, elements = 0;
  DACEML_TRY(call,
             aoti_torch_get_size(x, 0, &batch) || aoti_torch_get_size(x, 1, &channels) ||
                 aoti_torch_get_numel(x, &elements),
             "torch could not describe an operand");
  Stack stack;
  stack.tensor(dy).tensor(x).tensor(mean).tensor(inverse).optional(scale).integer(batch).integer(channels);
  stack.integer(batch * channels == 0 ? 0 : elements / (batch * channels)).integer(groups).list(wanted.mask, 3);
  DACEML_TRY(call, stack.call("aten::native_group_norm_backward"), "aten::native_group_norm_backward failed");
  return wanted.deliver(call, stack);
}

inline int32_t batch_norm_backward(daceml_call* call, Fresh* dx, Fresh* dscale, Fresh* dbias, AtenTensorHandle dy,
                                   AtenTensorHandle x, AtenTensorHandle mean, AtenTensorHandle inverse,
                                   AtenTensorHandle scale, double epsilon) {
  const Wanted wanted(dx, dscale, dbias);
  Stack stack;
  stack.tensor(dy).tensor(x).optional(scale).none().none().optional(mean).optional(inverse).boolean(true);
  DACEML_TRY(call, stack.number(epsilon).list(wanted.mask, 3).call("aten::native_batch_norm_backward"),
             "aten::native_batch_norm_backward failed");
  return wanted.deliver(call, stack);
}

// kept * old + (1 - kept) * new, of `channels` numbers each.
template <typename T>
inline void blend(T* result, const T* old, double kept, double factor, int64_t channels) {
  for (int64_t c = 0; c < channels; ++c) {
    result[c] = static_cast<T>(kept * old[c] + (1 - kept) * factor * result[c]);
  }
}

// Batch normalisation by the batch. Running statistics are ONNX's: `kept` is the weight of the old ones, and the
// variance is the population's. All outputs but the result are given; statistics that nobody reads are null.
inline int32_t batch_norm(daceml_call* call, Fresh& result, AtenTensorHandle running_mean,
                          AtenTensorHandle running_variance, Fresh* mean, Fresh* inverse,
                          AtenTensorHandle x, AtenTensorHandle scale, AtenTensorHandle bias, AtenTensorHandle old_mean,
                          AtenTensorHandle old_variance, double kept, double epsilon) {
  const bool running = running_mean != nullptr && running_variance != nullptr;
  int64_t elements = 0, channels = 0;
  int32_t type = 0;
  DACEML_TRY(call,
             aoti_torch_get_numel(x, &elements) || aoti_torch_get_numel(scale, &channels) ||
                 aoti_torch_get_dtype(x, &type),
             "torch could not describe an operand");
  if (running) {
    // with a momentum of 1 torch leaves the batch's own statistics there
    DACEML_TRY(call, aoti_torch_zero_(running_mean) || aoti_torch_zero_(running_variance),
               "torch could not clear statistics");
  }
  Stack stack;
  stack.tensor(x).optional(scale).optional(bias).optional(running ? running_mean : nullptr);
  stack.optional(running ? running_variance : nullptr).boolean(true).number(1.0).number(epsilon);
  DACEML_TRY(call, stack.call("aten::native_batch_norm"), "aten::native_batch_norm failed");
  Fresh* const targets[3] = {&result, mean, inverse};
  const AtenTensorHandle found[3] = {stack.result(0), stack.result(1), stack.result(2)};
  if (deliver(call, targets, found, 3)) return 1;
  if (!running) return 0;
  void* held[4];
  DACEML_TRY(call,
             aoti_torch_get_data_ptr(running_mean, &held[0]) || aoti_torch_get_data_ptr(running_variance, &held[1]) ||
                 aoti_torch_get_data_ptr(old_mean, &held[2]) || aoti_torch_get_data_ptr(old_variance, &held[3]),
             "torch could not describe an operand");
  // torch's variance is divided by n - 1
  const double n = static_cast<double>(elements) / static_cast<double>(channels);
  const auto finish = [&](auto* new_mean, auto* new_variance, const auto* before, const auto* variance_before) {
    blend(new_mean, before, kept, 1.0, channels);
    if (n <= 1) {
      for (int64_t c = 0; c < channels; ++c) new_variance[c] = 0;
    }
    blend(new_variance, variance_before, kept, (n - 1) / n, channels);
  };
  if (type == aoti_torch_dtype_float64()) {
    finish(static_cast<double*>(held[0]), static_cast<double*>(held[1]), static_cast<const double*>(held[2]),
           static_cast<const double*>(held[3]));
  } else {
    finish(static_cast<float*>(held[0]), static_cast<float*>(held[1]), static_cast<const float*>(held[2]),
           static_cast<const float*>(held[3]));
  }
  return 0;
}

inline int32_t softmax_backward(daceml_call* call, Fresh* result, AtenTensorHandle dy, AtenTensorHandle y, int64_t dim,
                                int32_t logarithm) {
  int32_t type = 0;
  DACEML_TRY(call, aoti_torch_get_dtype(y, &type), "torch could not describe an operand");
  Stack stack;
  stack.tensor(dy).tensor(y).integer(dim).integer(type);
  const char* name = logarithm ? "aten::_log_softmax_backward_data" : "aten::_softmax_backward_data";
  DACEML_TRY(call, stack.call(name), "aten::_softmax_backward_data failed");
  return result->take(call, stack.result());
}

}  // namespace aten
}  // namespace daceml
