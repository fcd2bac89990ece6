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

}  // namespace aten
}  // namespace daceml
