// Attention that keeps what its gradient needs, and gradients of attention, look-ups and cumulative sums.
#pragma once

#include <cmath>

#include <daceml/aten_dispatch.h>

namespace daceml {
namespace aten {

#ifndef DACEML_ON_CUDA

// Attention over [batch, heads, length, features] and the logarithms of its sums; see `attention`.
inline int32_t attention_saving(daceml_call* call, Fresh* y, Fresh* logsumexp, AtenTensorHandle q, AtenTensorHandle k,
                                AtenTensorHandle v, AtenTensorHandle mask, int32_t causal, double scale) {
  Fresh* const targets[2] = {y, logsumexp};
  AtenTensorHandle found[2] = {};
  DACEML_TRY(call,
             DACEML_ATEN(_scaled_dot_product_flash_attention_for_cpu)(q, k, v, 0.0, causal,
                                                                        mask == nullptr ? nullptr : &mask,
                                                                        std::isnan(scale) ? nullptr : &scale, &found[0],
                                                                        &found[1]),
             "aten::_scaled_dot_product_flash_attention_for_cpu failed");
  return deliver(call, targets, found, 2);
}

inline int32_t attention_backward(daceml_call* call, Fresh* dq, Fresh* dk, Fresh* dv, AtenTensorHandle dy,
                                  AtenTensorHandle q, AtenTensorHandle k, AtenTensorHandle v, AtenTensorHandle y,
                                  AtenTensorHandle logsumexp, AtenTensorHandle mask, int32_t causal, double scale) {
  Fresh* const targets[3] = {dq, dk, dv};
  AtenTensorHandle found[3] = {};
  DACEML_TRY(call,
             DACEML_ATEN(_scaled_dot_product_flash_attention_for_cpu_backward)(
                 dy, q, k, v, y, logsumexp, 0.0, causal, mask == nullptr ? nullptr : &mask,
                 std::isnan(scale) ? nullptr : &scale, &found[0], &found[1], &found[2]),
             "aten::_scaled_dot_product_flash_attention_for_cpu_backward failed");
  return deliver(call, targets, found, 3);
}

// Positions from 0: those that count from the end in a copy, which `made` then points to.
template <typename T>
inline int32_t positions_from_zero(const T* given, int64_t count, int64_t extent, int64_t** made) {
  bool below = false;
  for (int64_t i = 0; i < count; ++i) {
    if (given[i] < -extent || given[i] >= extent) return 1;
    below = below || given[i] < 0;
  }
  if (!below) return 0;
  *made = new int64_t[count];
  for (int64_t i = 0; i < count; ++i) (*made)[i] = given[i] < 0 ? given[i] + extent : given[i];
  return 0;
}

// Gradient of a table: rows of `dy` [count, width] added up where `indices` [count] point, from either end.
inline int32_t embedding_backward(daceml_call* call, Fresh* result, AtenTensorHandle dy, AtenTensorHandle indices,
                                  int64_t rows, int64_t padding, int32_t by_frequency) {
  void* held = nullptr;
  int64_t count = 0;
  int64_t* made = nullptr;
  int32_t type = 0;
  DACEML_TRY(call,
             aoti_torch_get_data_ptr(indices, &held) || aoti_torch_get_numel(indices, &count) ||
                 aoti_torch_get_dtype(indices, &type),
             "torch could not describe an operand");
  const bool is_long = type == aoti_torch_dtype_int64();
  const int32_t outside = is_long ? positions_from_zero(static_cast<const int64_t*>(held), count, rows, &made)
                                  : positions_from_zero(static_cast<const int32_t*>(held), count, rows, &made);
  DACEML_TRY(call, outside, "an index is outside the table that it looks up");
  AtenTensorHandle positions = indices;
  const int64_t stride = 1;
  int32_t failed = 0;
  if (made != nullptr) {
    failed = aoti_torch_create_tensor_from_blob(made, 1, &count, &stride, 0, aoti_torch_dtype_int64(),
                                                aoti_torch_device_type_cpu(), 0, &positions);
  }
  Stack stack;
  if (!failed) {
    stack.tensor(dy).tensor(positions).integer(rows).integer(padding).boolean(by_frequency);
    failed = stack.call("aten::embedding_dense_backward");
    if (made != nullptr) aoti_torch_delete_tensor_object(positions);
  }
  delete[] made;
  DACEML_TRY(call, failed, "aten::embedding_dense_backward failed");
  return result->take(call, stack.result());
}

// Gradient of the table of an embedding bag that sums: row `dy[b]` for each look-up of bag b.
inline int32_t embedding_bag_backward(daceml_call* call, Fresh* result, AtenTensorHandle dy, AtenTensorHandle indices,
                                      AtenTensorHandle offsets, int64_t rows) {
  void *held = nullptr, *starts = nullptr;
  int64_t count = 0, bags = 0;
  int32_t type = 0;
  DACEML_TRY(call,
             aoti_torch_get_data_ptr(indices, &held) || aoti_torch_get_data_ptr(offsets, &starts) ||
                 aoti_torch_get_numel(indices, &count) || aoti_torch_get_numel(offsets, &bags) ||
                 aoti_torch_get_dtype(offsets, &type),
             "torch could not describe an operand");
  int64_t* const owner = new int64_t[count + 1];
  const auto fill = [&](const auto* looked_up, const auto* first) {
    int64_t bag = 0;
    if (bags == 0 || first[0] != 0) return 1;
    for (int64_t t = 0; t < count; ++t) {
      while (bag + 1 < bags && first[bag + 1] <= t) {
        if (first[bag + 1] < first[bag]) return 1;
        ++bag;
      }
      if (looked_up[t] < 0 || looked_up[t] >= rows) return 1;
      owner[t] = bag;
    }
    return 0;
  };
  int32_t failed = type == aoti_torch_dtype_int64()
                       ? fill(static_cast<const int64_t*>(held), static_cast<const int64_t*>(starts))
                       : fill(static_cast<const int32_t*>(held), static_cast<const int32_t*>(starts));
  const char* message = "an index of an embedding bag is outside its table, or offsets are not ascending from 0";
  Stack gathered, added;
  if (!failed) {
    AtenTensorHandle bag_of = nullptr;
    const int64_t stride = 1;
    message = "aten::embedding_dense_backward failed";
    failed = aoti_torch_create_tensor_from_blob(owner, 1, &count, &stride, 0, aoti_torch_dtype_int64(),
                                                aoti_torch_device_type_cpu(), 0, &bag_of);
    if (!failed) {
      failed = gathered.tensor(dy).integer(0).tensor(bag_of).call("aten::index_select");
      aoti_torch_delete_tensor_object(bag_of);
    }
    if (!failed) {
      added.tensor(gathered.result()).tensor(indices).integer(rows).integer(-1).boolean(false);
      failed = added.call("aten::embedding_dense_backward");
      aoti_torch_delete_tensor_object(gathered.result());
    }
  }
  delete[] owner;
  DACEML_TRY(call, failed, message);
  return result->take(call, added.result());
}

#else

// Gradient of a table: rows of `dy` [count, width] added up where `indices` [count] point, from either end where no
// row is left out.
inline int32_t embedding_backward(daceml_call* call, Fresh* result, AtenTensorHandle dy, AtenTensorHandle indices,
                                  int64_t rows, int64_t padding, int32_t by_frequency) {
  Stack stack;
  if (padding >= 0 || by_frequency) {
    stack.tensor(dy).tensor(indices).integer(rows).integer(padding).boolean(by_frequency);
    DACEML_TRY(call, stack.call("aten::embedding_dense_backward"), "aten::embedding_dense_backward failed");
    return result->take(call, stack.result());
  }
  int64_t width = 0;
  DACEML_TRY(call, aoti_torch_get_size(dy, 1, &width), "torch could not describe an operand");
  const int64_t sizes[2] = {rows, width};
  stack.tensor(dy).list(sizes, 2).none().none().none().none();
  DACEML_TRY(call, stack.call("aten::new_zeros"), "aten::new_zeros failed");
  const AtenTensorHandle* where[] = {&indices};
  AtenTensorHandle sums = nullptr;
  const int32_t failed = DACEML_ATEN(index_put)(stack.result(), where, 1, dy, 1, &sums);
  aoti_torch_delete_tensor_object(stack.result());
  DACEML_TRY(call, failed, "aten::index_put failed");
  return result->take(call, sums);
}

// Gradient of the table of an embedding bag that sums: row `dy[b]` for each look-up of bag b.
inline int32_t embedding_bag_backward(daceml_call* call, Fresh* result, AtenTensorHandle dy, AtenTensorHandle indices,
                                      AtenTensorHandle offsets, int64_t rows) {
  // look-up t, counted from 1, belongs to the last of the bags that begin before it
  Stack ones, negative, bags, gathered, added;
  AtenTensorHandle numbers = nullptr, behind = nullptr;
  int32_t type = 0;
  int32_t failed = aoti_torch_get_dtype(offsets, &type) ||
                   ones.tensor(indices).none().none().none().none().none().call("aten::ones_like");
  if (!failed) {
    failed = DACEML_ATEN(cumsum)(ones.result(), 0, &type, &numbers);
    aoti_torch_delete_tensor_object(ones.result());
  }
  if (!failed) {
    failed = DACEML_ATEN(searchsorted_Tensor)(offsets, numbers, 0, 0, nullptr, nullptr, &behind);
    aoti_torch_delete_tensor_object(numbers);
  }
  if (!failed) {
    failed = negative.tensor(behind).call("aten::neg");  // ~(-n) is n - 1
    aoti_torch_delete_tensor_object(behind);
  }
  if (!failed) {
    failed = bags.tensor(negative.result()).call("aten::bitwise_not");
    aoti_torch_delete_tensor_object(negative.result());
  }
  if (!failed) {
    failed = gathered.tensor(dy).integer(0).tensor(bags.result()).call("aten::index_select");
    aoti_torch_delete_tensor_object(bags.result());
  }
  if (!failed) {
    added.tensor(gathered.result()).tensor(indices).integer(rows).integer(-1).boolean(false);
    failed = added.call("aten::embedding_dense_backward");
    aoti_torch_delete_tensor_object(gathered.result());
  }
  DACEML_TRY(call, failed, "the gradient of an embedding bag failed");
  return result->take(call, added.result());
}

#endif

// Cumulative sums from the end.
inline int32_t cumsum_backward(daceml_call* call, Fresh* result, AtenTensorHandle dy, int64_t dim) {
  int32_t type = 0;
  DACEML_TRY(call, aoti_torch_get_dtype(dy, &type), "torch could not describe an operand");
  Stack flipped, back;
  DACEML_TRY(call, flipped.tensor(dy).list(&dim, 1).call("aten::flip"), "aten::flip failed");
  AtenTensorHandle sums = nullptr;
  const int32_t failed = DACEML_ATEN(cumsum)(flipped.result(), dim, &type, &sums);
  aoti_torch_delete_tensor_object(flipped.result());
  DACEML_TRY(call, failed, "aten::cumsum failed");
  const int32_t not_flipped = back.tensor(sums).list(&dim, 1).call("aten::flip");
  aoti_torch_delete_tensor_object(sums);
  DACEML_TRY(call, not_flipped, "aten::flip failed");
  return result->take(call, back.result());
}

}  // namespace aten
}  // namespace daceml
