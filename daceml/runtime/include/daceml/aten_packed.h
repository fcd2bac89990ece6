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
int32_t aoti_torch_cpu__mkl_linear(AtenTensorHandle x, AtenTensorHandle packed, AtenTensorHandle weight,
                                   AtenTensorHandle* bias, int64_t rows, AtenTensorHandle* result);
}

namespace daceml {
namespace aten {

inline int32_t packed_convolution(daceml_call* call, Fresh& result, AtenTensorHandle x, AtenTensorHandle packed,
                                  AtenTensorHandle bias, int64_t rank, const int64_t* strides, const int64_t* pads,
                                  const int64_t* dilations, int64_t group) {
  const char* algorithm = "";
  return single(call, result, "mkldnn::_convolution_pointwise failed", [&](AtenTensorHandle* y) {
    return aoti_torch_cpu_mkldnn__convolution_pointwise(x, packed, bias == nullptr ? nullptr : &bias, pads, rank,
                                                        strides, rank, dilations, rank, group, "none", nullptr, 0,
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
