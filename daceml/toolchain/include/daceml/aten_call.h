// What calls of ATen operators share: views of plain pointers, results that torch allocates, status codes.
#pragma once

#include <daceml/place.h>

namespace daceml {

struct Shape {
  int32_t dtype;
  int64_t rank;
  const int64_t* sizes;

  void row_major(int64_t* strides) const {
    int64_t dense = 1;
    for (int64_t d = rank - 1; d >= 0; --d) {
      strides[d] = dense;
      dense *= sizes[d] > 0 ? sizes[d] : 1;
    }
  }
};

struct Geometry {
  int32_t dtype;
  int64_t ndim;
  const int64_t* sizes;
  const int64_t* strides;
};

// The tensor over `pointer`, reused from the frame while the pointer stays the same.
inline int32_t view(daceml_call* call, int slot, void* pointer, const Geometry& g, AtenTensorHandle* handle) {
  daceml_view& kept = call->views[slot];
  if (kept.handle == nullptr || kept.pointer != pointer) {
    if (kept.handle != nullptr) {
      aoti_torch_delete_tensor_object(kept.handle);
      kept.handle = nullptr;
    }
    DACEML_TRY(call,
               aoti_torch_create_tensor_from_blob_v2(pointer, g.ndim, g.sizes, g.strides, 0, g.dtype, device_type(),
                                                     call->device, &kept.handle, aoti_torch_layout_strided(), nullptr,
                                                     0),
               "torch could not view an operand");
    kept.pointer = pointer;
  }
  *handle = kept.handle;
  return 0;
}

// Dimensions of a tensor, outermost in memory first; null is their own order.
constexpr int channels_last[] = {0, 2, 3, 1};

// Lets go of an input, if the call alone holds it.
inline void release(daceml_call* call, int input) {
  if (call->held == nullptr || call->held[input] == nullptr) return;
  aoti_torch_delete_tensor_object(call->held[input]);
  call->held[input] = nullptr;
}

// An array in memory of its own: made here, or by an operator that hands its buffer over, in the layout that its
// readers expect. Freed after its last reader, or given to the caller.
class Fresh {
 public:
  explicit Fresh(const int* order = nullptr) : order_(order) {}
  ~Fresh() { release(); }
  void release() {
    if (handle_ != nullptr) aoti_torch_delete_tensor_object(handle_);
    handle_ = nullptr;
  }
  int32_t make(daceml_call* call, const Shape& shape) {
    release();
    int64_t strides[64];  // torch's limit
    shape.row_major(strides);
    DACEML_TRY(call,
               aoti_torch_empty_strided(shape.rank, shape.sizes, strides, shape.dtype, device_type(), call->device,
                                        &handle_),
               "there is no memory for a result");
    int64_t bytes = 0;
    if (aoti_torch_get_data_ptr(handle_, &pointer_) || aoti_torch_get_storage_size(handle_, &bytes)) return 1;
    prepare_memory(pointer_, bytes);
    return 0;
  }
  // For arrays whose layout only generated code knows.
  int32_t make(daceml_call* call, int64_t bytes) { return make(call, {aoti_torch_dtype_uint8(), 1, &bytes}); }
  // Makes it the call's output, which an operator may have made in another shape of as many elements.
  int32_t give(daceml_call* call, int output, const Shape& shape) {
    int64_t strides[64];
    shape.row_major(strides);
    bool same = false;
    DACEML_TRY(call, has(shape, strides, &same), "the shape of a result is unknown");
    if (!same) {
      AtenTensorHandle shaped = nullptr;
      DACEML_TRY(call,
                 // torch adds the result's own offset
                 aoti_torch__reinterpret_tensor(handle_, shape.rank, shape.sizes, strides, 0, &shaped),
                 "torch could not give a result its shape");
      release();
      handle_ = shaped;
    }
    call->outputs[output] = handle_;
    handle_ = nullptr;
    return 0;
  }
  // Takes the handle over; a result in another layout is brought into this one.
  int32_t take(daceml_call* call, AtenTensorHandle handle) {
    release();
    handle_ = handle;
    bool fits = false;
    DACEML_TRY(call, fits_layout(&fits), "the result's layout is unknown");
    if (!fits) {
      const int32_t format = order_ == nullptr ? aoti_torch_memory_format_contiguous_format()
                                               : aoti_torch_memory_format_channels_last();
      uint64_t stack[2] = {reinterpret_cast<uint64_t>(handle_), static_cast<uint64_t>(format)};
      handle_ = nullptr;  // the dispatcher takes its arguments over
      DACEML_TRY(call, aoti_torch_call_dispatcher("aten::contiguous", "", stack), "aten::contiguous failed");
      handle_ = reinterpret_cast<AtenTensorHandle>(stack[0]);
    }
    return aoti_torch_get_data_ptr(handle_, &pointer_);
  }
  // Non-zero unless the memory is of this type and shape.
  int32_t expect(daceml_call* call, const Shape& shape) const {
    int32_t dtype = 0;
    int64_t rank = 0;
    int64_t* sizes = nullptr;
    DACEML_TRY(call,
               aoti_torch_get_dtype(handle_, &dtype) || aoti_torch_get_dim(handle_, &rank) ||
                   aoti_torch_get_sizes(handle_, &sizes),
               "the shape of a result is unknown");
    bool same = dtype == shape.dtype && rank == shape.rank;
    for (int64_t d = 0; same && d < rank; ++d) same = sizes[d] == shape.sizes[d];
    DACEML_TRY(call, !same, "an operator of torch gave another shape or type than it said while it was traced");
    return 0;
  }
  void* pointer() const { return pointer_; }

 private:
  int32_t has(const Shape& shape, const int64_t* strides, bool* same) const {
    int64_t rank = 0;
    int64_t *sizes = nullptr, *own = nullptr;
    if (aoti_torch_get_dim(handle_, &rank) || aoti_torch_get_sizes(handle_, &sizes) ||
        aoti_torch_get_strides(handle_, &own)) {
      return 1;
    }
    *same = rank == shape.rank;
    for (int64_t d = 0; *same && d < rank; ++d) *same = sizes[d] == shape.sizes[d] && own[d] == strides[d];
    return 0;
  }
  int32_t fits_layout(bool* fits) const {
    if (order_ == nullptr) return aoti_torch_is_contiguous(handle_, fits);
    int64_t rank = 0;
    int64_t *sizes = nullptr, *strides = nullptr;
    if (aoti_torch_get_dim(handle_, &rank) || aoti_torch_get_sizes(handle_, &sizes) ||
        aoti_torch_get_strides(handle_, &strides)) {
      return 1;
    }
    int64_t dense = 1;
    *fits = true;
    for (int64_t i = rank - 1; i >= 0; --i) {
      const int d = order_[i];
      *fits = *fits && (sizes[d] == 1 || strides[d] == dense);
      dense *= sizes[d];
    }
    return 0;
  }

  AtenTensorHandle handle_ = nullptr;
  void* pointer_ = nullptr;
  const int* order_;
};

namespace aten {

// A result of one tensor.
template <typename Operator>
inline int32_t single(daceml_call* call, Fresh& result, const char* message, Operator&& operation) {
  AtenTensorHandle y = nullptr;
  DACEML_TRY(call, operation(&y), message);
  return result.take(call, y);
}

// Two results: the first is handed over, the second copied, where somebody reads it.
template <typename Operator>
inline int32_t pair(daceml_call* call, Fresh& result, AtenTensorHandle second, const char* message,
                    Operator&& operation) {
  AtenTensorHandle a = nullptr;
  AtenTensorHandle b = nullptr;
  DACEML_TRY(call, operation(&a, &b), message);
  const int32_t failed = second == nullptr ? 0 : aoti_torch_copy_(second, b, 0);
  aoti_torch_delete_tensor_object(b);
  if (failed) aoti_torch_delete_tensor_object(a);
  DACEML_TRY(call, failed, message);
  return result.take(call, a);
}

}  // namespace aten
}  // namespace daceml
