// Kernels that torch has for CUDA devices: fused attention, products and convolutions with an activation.
//
// What the user sets (TF32, determinism, cuDNN's benchmark) is torch's, and read by torch at each call. Attention draws
// no dropout here: seeds and offsets are memory that nobody looks at.
#pragma once

#include <cmath>

#include <daceml/aten_dispatch.h>

namespace daceml {
namespace aten {
namespace device {

// A tensor of this scope.
struct Owned {
  Owned() = default;
  ~Owned() {
    if (handle != nullptr) aoti_torch_delete_tensor_object(handle);
  }
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;

  AtenTensorHandle handle = nullptr;
};

// Shape of a tensor of up to four dimensions.
struct Form {
  int64_t rank = 0, sizes[4] = {}, strides[4] = {};
  int32_t dtype = 0;

  int32_t read(AtenTensorHandle tensor) {
    int64_t *extents = nullptr, *steps = nullptr;
    if (aoti_torch_get_dim(tensor, &rank) || rank > 4 || aoti_torch_get_sizes(tensor, &extents) ||
        aoti_torch_get_strides(tensor, &steps) || aoti_torch_get_dtype(tensor, &dtype)) {
      return 1;
    }
    for (int64_t d = 0; d < rank; ++d) {
      sizes[d] = extents[d];
      strides[d] = steps[d];
    }
    return 0;
  }
  // The memory of a tensor under this shape; torch adds the tensor's own offset.
  int32_t over(AtenTensorHandle tensor, AtenTensorHandle* made) const {
    return aoti_torch__reinterpret_tensor(tensor, rank, sizes, strides, 0, made);
  }
};

inline int32_t empty(daceml_call* call, int64_t rank, const int64_t* sizes, int32_t dtype, AtenTensorHandle* made) {
  int64_t strides[4];
  Shape{dtype, rank, sizes}.row_major(strides);
  return aoti_torch_empty_strided(rank, sizes, strides, dtype, device_type(), call->device, made);
}

// A copy whose rows are `extent` long, the rest of each filled; seen as long as they were.
inline int32_t padded(daceml_call* call, AtenTensorHandle tensor, int64_t extent, double filler, Owned* whole,
                      Owned* part) {
  Form form, longer;
  if (form.read(tensor)) return 1;
  longer = form;
  longer.sizes[form.rank - 1] = extent;
  if (empty(call, form.rank, longer.sizes, form.dtype, &whole->handle) || longer.read(whole->handle) ||
      DACEML_ATEN(fill__Scalar)(whole->handle, filler)) {
    return 1;
  }
  longer.sizes[form.rank - 1] = form.sizes[form.rank - 1];
  return longer.over(whole->handle, &part->handle) || aoti_torch_copy_(part->handle, tensor, 0);
}

// A mask in the shape of the scores; its rows begin at multiples of 8 elements, as the kernel reads them.
struct Bias {
  int32_t make(daceml_call* call, AtenTensorHandle mask, AtenTensorHandle q, AtenTensorHandle k) {
    if (mask == nullptr) return 0;
    constexpr int64_t together = 8;
    Form own, queries, keys;
    if (own.read(mask) || queries.read(q) || keys.read(k)) return 1;
    const int64_t columns = own.sizes[3];
    AtenTensorHandle source = mask;
    if (columns % together != 0) {
      const int64_t extent = (columns + together - 1) / together * together;
      if (padded(call, mask, extent, 0, &whole_, &part_) || own.read(part_.handle)) return 1;
      source = part_.handle;
    }
    const int64_t scores[4] = {queries.sizes[0], queries.sizes[1], queries.sizes[2], keys.sizes[2]};
    for (int d = 0; d < 4; ++d) {
      if (own.sizes[d] == 1 && d < 3) own.strides[d] = 0;
      own.sizes[d] = scores[d];
    }
    return own.over(source, &expanded_.handle);
  }
  AtenTensorHandle handle() const { return expanded_.handle; }

 private:
  Owned whole_, part_, expanded_;
};

// Hands over [batch, heads, length, features]; `beside` as [batch, length, heads, features].
inline int32_t give_heads(daceml_call* call, Fresh* target, AtenTensorHandle found, int32_t beside) {
  Owned owned;
  owned.handle = found;
  if (target == nullptr) return 0;
  if (!beside) {
    owned.handle = nullptr;
    return target->take(call, found);
  }
  Form form;
  AtenTensorHandle swapped = nullptr;
  DACEML_TRY(call, form.read(found), "torch could not describe a result");
  const int64_t heads = form.sizes[1], step = form.strides[1];
  form.sizes[1] = form.sizes[2];
  form.strides[1] = form.strides[2];
  form.sizes[2] = heads;
  form.strides[2] = step;
  DACEML_TRY(call, form.over(found, &swapped), "torch could not give a result its shape");
  return target->take(call, swapped);
}

// Hands over as many logarithms as there are queries: the kernel gives a multiple of 32, or of other numbers.
inline int32_t give_logarithms(daceml_call* call, Fresh* target, AtenTensorHandle found, AtenTensorHandle q) {
  Owned owned;
  owned.handle = found;
  if (target == nullptr) return 0;
  Form form, queries;
  AtenTensorHandle first = nullptr;
  DACEML_TRY(call, form.read(found) || queries.read(q), "torch could not describe a result");
  form.sizes[2] = queries.sizes[2];
  DACEML_TRY(call, form.over(found, &first), "torch could not give a result its shape");
  return target->take(call, first);
}

inline int32_t give_gradients(daceml_call* call, Fresh* const* targets, const Stack& found, int32_t beside) {
  int32_t failed = 0;
  for (int i = 0; i < 3; ++i) {  // each takes its own over, whatever became of the ones before
    failed = give_heads(call, failed ? nullptr : targets[i], found.result(i), beside) || failed;
  }
  return failed;
}

// Result, logarithms, and what nobody wants. Results that are numbers do not come back through the dispatcher, so it is
// called as torch's C function, and for tests on a processor under a name of its own, which has tensors alone.
inline int32_t flash(AtenTensorHandle q, AtenTensorHandle k, AtenTensorHandle v, int32_t causal, double* scale,
                     AtenTensorHandle* found) {
#ifdef DACEML_ON_CUDA
  int64_t longest[2] = {};
  return aoti_torch_cuda__scaled_dot_product_flash_attention(q, k, v, 0.0, causal, 0, scale, &found[0], &found[1],
                                                             &found[2], &found[3], &longest[0], &longest[1],
                                                             &found[4], &found[5], &found[6]);
#else
  Stack stack;
  stack.tensor(q).tensor(k).tensor(v).number(0).boolean(causal).boolean(false);
  stack.optional_number(scale == nullptr ? __builtin_nan("") : *scale);
  if (stack.call("daceml::emulated_flash_attention")) return 1;
  for (int i = 0; i < 2; ++i) found[i] = stack.result(i);
  return 0;
#endif
}

}  // namespace device

// Attention over [batch, heads, length, features], and the logarithms of its sums where they are wanted; a missing
// mask is a null handle, a scale of NaN means 1 / sqrt(features), `beside` that the result is [batch, length, heads, features].
inline int32_t device_efficient_attention(daceml_call* call, Fresh* y, Fresh* logsumexp, AtenTensorHandle q,
                                          AtenTensorHandle k, AtenTensorHandle v, AtenTensorHandle mask,
                                          int32_t causal, int32_t beside, double scale) {
  device::Bias bias;
  DACEML_TRY(call, bias.make(call, mask, q, k), "torch could not lay out a mask");
  Stack stack;
  stack.tensor(q).tensor(k).tensor(v).optional(bias.handle()).boolean(logsumexp != nullptr).number(0);
  stack.boolean(causal).optional_number(scale);
  DACEML_TRY(call, stack.call("aten::_scaled_dot_product_efficient_attention"),
             "aten::_scaled_dot_product_efficient_attention failed");
  for (int i = 2; i < 4; ++i) aoti_torch_delete_tensor_object(stack.result(i));
  const int32_t failed = device::give_heads(call, y, stack.result(0), beside);
  return device::give_logarithms(call, failed ? nullptr : logsumexp, stack.result(1), q) || failed;
}

// Gradients of that attention; that of the mask has the mask's shape.
inline int32_t device_efficient_attention_backward(daceml_call* call, Fresh* dq, Fresh* dk, Fresh* dv, Fresh* dmask,
                                                   AtenTensorHandle dy, AtenTensorHandle q, AtenTensorHandle k,
                                                   AtenTensorHandle v, AtenTensorHandle y, AtenTensorHandle logsumexp,
                                                   AtenTensorHandle mask, int32_t causal, int32_t beside,
                                                   double scale) {
  Fresh* const targets[3] = {dq, dk, dv};
  const bool wanted[4] = {dq != nullptr, dk != nullptr, dv != nullptr, dmask != nullptr};
  device::Bias bias;
  DACEML_TRY(call, bias.make(call, mask, q, k), "torch could not lay out a mask");
  // the kernel reads rows of 32 queries, and gives nothing to one whose logarithm is infinite
  device::Form sums;
  device::Owned whole, part, seed;
  DACEML_TRY(call, sums.read(logsumexp), "torch could not describe an operand");
  const int64_t rows = (sums.sizes[2] + 31) / 32 * 32;
  const bool ragged = rows != sums.sizes[2];
  DACEML_TRY(call,
             (ragged && device::padded(call, logsumexp, rows, __builtin_inf(), &whole, &part)) ||
                 device::empty(call, 0, &rows, aoti_torch_dtype_int64(), &seed.handle),
             "there is no memory for operands of attention");
  Stack stack;
  stack.tensor(dy).tensor(q).tensor(k).tensor(v);
  if (bias.handle() == nullptr) {
    stack.undefined();
  } else {
    stack.tensor(bias.handle());
  }
  stack.tensor(y).tensor(ragged ? whole.handle : logsumexp).tensor(seed.handle).tensor(seed.handle).number(0);
  stack.list(wanted, 4).boolean(causal).optional_number(scale);
  DACEML_TRY(call, stack.call("aten::_scaled_dot_product_efficient_attention_backward"),
             "aten::_scaled_dot_product_efficient_attention_backward failed");
  int32_t failed = device::give_gradients(call, targets, stack, beside);
  device::Owned found;
  found.handle = stack.result(3);
  if (failed || dmask == nullptr) return failed;
  device::Form shape;
  DACEML_TRY(call, shape.read(mask), "torch could not describe an operand");
  Stack summed;
  summed.tensor(found.handle).list(shape.sizes, 4);
  DACEML_TRY(call, summed.call("aten::sum_to_size"), "aten::sum_to_size failed");
  return dmask->take(call, summed.result());
}

// Attention without a mask, in half types; see `device_efficient_attention`.
inline int32_t device_flash_attention(daceml_call* call, Fresh* y, Fresh* logsumexp, AtenTensorHandle q,
                                      AtenTensorHandle k, AtenTensorHandle v, int32_t causal, int32_t beside,
                                      double scale) {
  AtenTensorHandle found[7] = {};
  DACEML_TRY(call, device::flash(q, k, v, causal, std::isnan(scale) ? nullptr : &scale, found),
             "aten::_scaled_dot_product_flash_attention failed");
  for (int i = 2; i < 7; ++i) {
    if (found[i] != nullptr) aoti_torch_delete_tensor_object(found[i]);
  }
  const int32_t failed = device::give_heads(call, y, found[0], beside);
  return device::give_logarithms(call, failed ? nullptr : logsumexp, found[1], q) || failed;
}

inline int32_t device_flash_attention_backward(daceml_call* call, Fresh* dq, Fresh* dk, Fresh* dv, AtenTensorHandle dy,
                                               AtenTensorHandle q, AtenTensorHandle k, AtenTensorHandle v,
                                               AtenTensorHandle y, AtenTensorHandle logsumexp, int32_t causal,
                                               int32_t beside, double scale) {
  Fresh* const targets[3] = {dq, dk, dv};
  device::Form queries, keys;
  device::Owned seed;
  const int64_t words = 2;
  DACEML_TRY(call, queries.read(q) || keys.read(k), "torch could not describe an operand");
  DACEML_TRY(call, device::empty(call, 1, &words, aoti_torch_dtype_uint64(), &seed.handle),
             "there is no memory for operands of attention");
  Stack stack;
  stack.tensor(dy).tensor(q).tensor(k).tensor(v).tensor(y).tensor(logsumexp).undefined().undefined();
  stack.integer(queries.sizes[2]).integer(keys.sizes[2]).number(0).boolean(causal);
  stack.tensor(seed.handle).tensor(seed.handle).optional_number(scale);
  DACEML_TRY(call, stack.call("aten::_scaled_dot_product_flash_attention_backward"),
             "aten::_scaled_dot_product_flash_attention_backward failed");
  return device::give_gradients(call, targets, stack, beside);
}

// relu, or GELU by tanh, of c + alpha * a b: cuBLASLt applies it before it writes.
inline int32_t device_addmm_activation(daceml_call* call, Fresh& result, AtenTensorHandle c, AtenTensorHandle a,
                                       AtenTensorHandle b, double beta, double alpha, int32_t gelu) {
  return single(call, result, "aten::_addmm_activation failed",
                [&](auto* y) { return DACEML_ATEN(_addmm_activation)(c, a, b, beta, alpha, gelu, y); });
}

// relu of a convolution, to which `z` is added first where it is no null handle.
inline int32_t device_convolution_relu(daceml_call* call, Fresh& result, AtenTensorHandle x, AtenTensorHandle w,
                                       AtenTensorHandle bias, AtenTensorHandle z, int64_t rank, const int64_t* strides,
                                       const int64_t* pads, const int64_t* dilations, int64_t group) {
  Stack stack;
  stack.tensor(x).tensor(w);
  if (z != nullptr) stack.tensor(z).none();  // added as it is
  stack.optional(bias).list(strides, rank).list(pads, rank).list(dilations, rank).integer(group);
  const char* name = z == nullptr ? "aten::cudnn_convolution_relu" : "aten::cudnn_convolution_add_relu";
  DACEML_TRY(call, stack.call(name), "a convolution with relu failed in cuDNN");
  return result.take(call, stack.result());
}

}  // namespace aten
}  // namespace daceml
