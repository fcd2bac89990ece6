// Convolutions of our own, as drivers call them; the loops are compiled once (daceml/codegen/convolutions.cpp).
#pragma once

#include <daceml/aten_call.h>

extern "C" {
void daceml_depthwise(const float* x, const float* weight, const float* bias, float* y, const int64_t* geometry,
                      float low, float high, int32_t swish);
void daceml_pointwise(const float* x, const float* weight, const float* bias, const float* other, float* y,
                      const int64_t* geometry, float low, float high, int32_t swish);
}

namespace daceml {
namespace aten {

inline int32_t elements(AtenTensorHandle tensor, float** first) {
  return tensor == nullptr ? 0 : aoti_torch_get_data_ptr(tensor, reinterpret_cast<void**>(first));
}

// `geometry` holds the numbers of Depthwise in their order.
inline int32_t depthwise(daceml_call* call, AtenTensorHandle y, AtenTensorHandle x, AtenTensorHandle weight,
                         AtenTensorHandle bias, const int64_t* geometry, double low, double high, int32_t swish) {
  float *to = nullptr, *from = nullptr, *by = nullptr, *plus = nullptr;
  DACEML_TRY(call, elements(y, &to) || elements(x, &from) || elements(weight, &by) || elements(bias, &plus),
             "torch could not describe an operand");
  daceml_depthwise(from, by, plus, to, geometry, static_cast<float>(low), static_cast<float>(high), swish);
  return 0;
}

// `geometry` holds the numbers of Pointwise in their order; a missing operand is a null handle.
inline int32_t pointwise(daceml_call* call, AtenTensorHandle y, AtenTensorHandle x, AtenTensorHandle packed,
                         AtenTensorHandle bias, AtenTensorHandle other, const int64_t* geometry, double low,
                         double high, int32_t swish) {
  float *to = nullptr, *from = nullptr, *by = nullptr, *plus = nullptr, *more = nullptr;
  DACEML_TRY(call,
             elements(y, &to) || elements(x, &from) || elements(packed, &by) || elements(bias, &plus) ||
                 elements(other, &more),
             "torch could not describe an operand");
  daceml_pointwise(from, by, plus, more, to, geometry, static_cast<float>(low), static_cast<float>(high), swish);
  return 0;
}

}  // namespace aten
}  // namespace daceml
