// Calls with packed weights: oneDNN's and MKL's kernels with a weight in an order of their own.
#pragma once

#include <daceml/aten_call.h>

// As torch/csrc/inductor/aoti_torch/c/shim_cpu.h declares them, which cannot be included on its own. A torch without
// oneDNN or MKL has neither, and then no program asks for them.
extern "C" {
int32_t aoti_torch_cpu_mkldnn__convolution_pointwise(AtenTensorHandle x, AtenTensorHandle w, AtenTensorHandle* bias,
                                                     const int64_t* pads, int64_t pads_len, const int64_t* strides,
                                                     int64_t strides_len, const int64_t* dilations,
                                                     int64_t dilations_len, int64_t groups, const char* attr,
                                                     const double** scalars, int64_t scalars_len,
                                                     const char** algorithm, AtenTensorHandle* result);
int32_t aoti_torch_cpu_mkldnn__convolution_pointwise_binary(
    AtenTensorHandle x, AtenTensorHandle other, AtenTensorHandle w, AtenTensorHandle* bias, const int64_t* pads,
    int64_t pads_len, const int64_t* strides, int64_t strides_len, const int64_t* dilations, int64_t dilations_len,
    int64_t groups, const char* binary, double* alpha, const char** unary, const double** scalars, int64_t scalars_len,
    const char** algorithm, AtenTensorHandle* result);
int32_t aoti_torch_cpu__mkl_linear(AtenTensorHandle x, AtenTensorHandle packed, AtenTensorHandle weight,
                                   AtenTensorHandle* bias, int64_t rows, AtenTensorHandle* result);
int32_t aoti_torch_cpu_mkldnn_rnn_layer(AtenTensorHandle x, AtenTensorHandle w, AtenTensorHandle r,
                                        AtenTensorHandle input_bias, AtenTensorHandle state_bias, AtenTensorHandle h,
                                        AtenTensorHandle c, int32_t reverse, const int64_t* batch_sizes,
                                        int64_t batch_sizes_len, int64_t mode, int64_t hidden, int64_t layers,
                                        int32_t has_biases, int32_t bidirectional, int32_t batch_first, int32_t train,
                                        AtenTensorHandle* y, AtenTensorHandle* last_h, AtenTensorHandle* last_c,
                                        AtenTensorHandle* workspace);
}

namespace daceml {

// Whether an element is NaN, infinite, or of a larger magnitude than the limit; any is, where the limit is negative.
// The bits of magnitudes are ordered as the magnitudes are, and those of NaN come last.
__attribute__((optimize("O3"))) inline int32_t beyond(const void* elements, int64_t count, const void* limit) {
  const int32_t* bits = static_cast<const int32_t*>(elements);
  int32_t most = 0;
#pragma omp parallel for simd reduction(max : most) if (count > 65536)
  for (int64_t i = 0; i < count; ++i) {
    const int32_t magnitude = bits[i] & 0x7fffffff;
    most = most > magnitude ? most : magnitude;
  }
  return most > *static_cast<const int32_t*>(limit);
}

namespace aten {

// As daceml/onnx_ops/domain/convolution_activation.py orders them.
enum Activation { none, relu, clip, swish };

// activation(convolution + other); a missing operand is a null handle, and with another one there is no group.
inline int32_t packed_convolution(daceml_call* call, Fresh& result, AtenTensorHandle x, AtenTensorHandle packed,
                                  AtenTensorHandle bias, AtenTensorHandle other, int64_t rank, const int64_t* strides,
                                  const int64_t* pads, const int64_t* dilations, int64_t group, int activation,
                                  double low, double high) {
  AtenTensorHandle* const b = bias == nullptr ? nullptr : &bias;
  if (other != nullptr) {
    const char* unary = "relu";
    return single(call, result, "mkldnn::_convolution_pointwise.binary failed", [&](AtenTensorHandle* y) {
      return aoti_torch_cpu_mkldnn__convolution_pointwise_binary(
          x, other, packed, b, pads, rank, strides, rank, dilations, rank, group, "add", nullptr,
          activation == relu ? &unary : nullptr, nullptr, 0, nullptr, y);
    });
  }
  static const char* const names[] = {"none", "relu", "hardtanh", "swish"};
  const char* algorithm = "";
  const double* scalars[] = {&low, &high};
  return single(call, result, "mkldnn::_convolution_pointwise failed", [&](AtenTensorHandle* y) {
    return aoti_torch_cpu_mkldnn__convolution_pointwise(x, packed, b, pads, rank, strides, rank, dilations, rank,
                                                        group, names[activation], scalars, activation == clip ? 2 : 0,
                                                        &algorithm, y);
  });
}

// x times the transposed weight, for the number of rows that the weight was packed for.
inline int32_t packed_product(daceml_call* call, Fresh& result, AtenTensorHandle x, AtenTensorHandle packed,
                              AtenTensorHandle weight, AtenTensorHandle bias, int64_t rows) {
  return single(call, result, "mkl::_mkl_linear failed", [&](AtenTensorHandle* y) {
    return aoti_torch_cpu__mkl_linear(x, packed, weight, bias == nullptr ? nullptr : &bias, rows, y);
  });
}

// A tensor that goes with its name: a part of another one, or a result.
struct Held {
  ~Held() {
    if (handle != nullptr) aoti_torch_delete_tensor_object(handle);
  }
  int32_t part(AtenTensorHandle whole, int64_t first, const Shape& shape) {
    int64_t strides[4];
    shape.row_major(strides);
    return aoti_torch__reinterpret_tensor(whole, shape.rank, shape.sizes, strides, first, &handle);
  }
  int32_t zeros(daceml_call* call, const Shape& shape) {
    int64_t strides[4];
    shape.row_major(strides);
    return aoti_torch_empty_strided(shape.rank, shape.sizes, strides, shape.dtype, device_type(), call->device,
                                    &handle) ||
           aoti_torch_zero_(handle);
  }
  AtenTensorHandle handle = nullptr;
};

// The result of a layer's one direction is handed over; where another direction has a part, it is copied into its own.
inline int32_t deliver_part(daceml_call* call, Fresh* to, Held& found, const Geometry&, int64_t) {
  if (to == nullptr) return 0;
  const AtenTensorHandle handle = found.handle;
  found.handle = nullptr;
  return to->take(call, handle);
}

inline int32_t deliver_part(daceml_call* call, AtenTensorHandle to, Held& found, const Geometry& g, int64_t first) {
  if (to == nullptr) return 0;
  Held part;
  DACEML_TRY(call,
             aoti_torch__reinterpret_tensor(to, g.ndim, g.sizes, g.strides, first, &part.handle) ||
                 aoti_torch_copy_(part.handle, found.handle, 0),
             "a result of a recurrent layer could not be copied");
  return 0;
}

template <typename Result>
inline int32_t fused_lstm_into(daceml_call* call, Result y, Result last_h, Result last_c, AtenTensorHandle x,
                               AtenTensorHandle w, AtenTensorHandle r, AtenTensorHandle b, AtenTensorHandle first_h,
                               AtenTensorHandle first_c, int64_t directions, int64_t reverse) {
  constexpr int64_t lstm = 2;  // torch's number of it
  int64_t steps = 0, batch = 0, inputs = 0, hidden = 0;
  DACEML_TRY(call,
             aoti_torch_get_size(x, 0, &steps) || aoti_torch_get_size(x, 1, &batch) ||
                 aoti_torch_get_size(x, 2, &inputs) || aoti_torch_get_size(r, 2, &hidden),
             "torch could not describe an operand");
  const int32_t type = aoti_torch_dtype_float32();
  const int64_t rows = 4 * hidden, ones = batch * hidden;
  const int64_t of_w[] = {rows, inputs}, of_r[] = {rows, hidden}, of_b[] = {rows}, of_state[] = {1, batch, hidden};
  const int64_t of_y[] = {steps, batch, hidden}, along_y[] = {directions * ones, hidden, 1};
  const int64_t along_state[] = {ones, hidden, 1};
  for (int64_t d = 0; d < directions; ++d) {
    Held wd, rd, b_input, b_state, h, c, found_y, found_h, found_c, workspace;
    const auto state = [&](Held& to, AtenTensorHandle from) {
      const Shape shape = {type, 3, of_state};
      return from == nullptr ? to.zeros(call, shape) : to.part(from, d * ones, shape);
    };
    DACEML_TRY(call,
               wd.part(w, d * rows * inputs, {type, 2, of_w}) || rd.part(r, d * rows * hidden, {type, 2, of_r}) ||
                   (b != nullptr && (b_input.part(b, d * 2 * rows, {type, 1, of_b}) ||
                                     b_state.part(b, (d * 2 + 1) * rows, {type, 1, of_b}))) ||
                   state(h, first_h) || state(c, first_c),
               "torch could not view an operand");
    DACEML_TRY(call,
               aoti_torch_cpu_mkldnn_rnn_layer(x, wd.handle, rd.handle, b == nullptr ? wd.handle : b_input.handle,
                                               b == nullptr ? wd.handle : b_state.handle, h.handle, c.handle,
                                               reverse || d == 1, nullptr, 0, lstm, hidden, 1, b != nullptr, 0, 0, 0,
                                               &found_y.handle, &found_h.handle, &found_c.handle, &workspace.handle),
               "aten::mkldnn_rnn_layer failed");
    if (deliver_part(call, y, found_y, {type, 3, of_y, along_y}, d * ones) ||
        deliver_part(call, last_h, found_h, {type, 3, of_state, along_state}, d * ones) ||
        deliver_part(call, last_c, found_c, {type, 3, of_state, along_state}, d * ones)) {
      return 1;
    }
  }
  return 0;
}

// oneDNN's LSTM, direction by direction; weights and biases have their gates in torch's order. Results, the bias and
// initial states may be null.
inline int32_t fused_lstm(daceml_call* call, Fresh* y, Fresh* last_h, Fresh* last_c, AtenTensorHandle x,
                          AtenTensorHandle w, AtenTensorHandle r, AtenTensorHandle b, AtenTensorHandle first_h,
                          AtenTensorHandle first_c, int64_t directions, int64_t reverse) {
  return fused_lstm_into(call, y, last_h, last_c, x, w, r, b, first_h, first_c, directions, reverse);
}

inline int32_t fused_lstm(daceml_call* call, AtenTensorHandle y, AtenTensorHandle last_h, AtenTensorHandle last_c,
                          AtenTensorHandle x, AtenTensorHandle w, AtenTensorHandle r, AtenTensorHandle b,
                          AtenTensorHandle first_h, AtenTensorHandle first_c, int64_t directions, int64_t reverse) {
  return fused_lstm_into(call, y, last_h, last_c, x, w, r, b, first_h, first_c, directions, reverse);
}

}  // namespace aten
}  // namespace daceml
