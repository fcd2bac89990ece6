// Convolutions of our own, as drivers call them; the loops are compiled once (daceml/codegen/convolutions.cpp).
#pragma once

#include <daceml/aten_call.h>
#include <daceml/aten_gradients.h>

extern "C" {
void daceml_depthwise(const float* x, const float* weight, const float* bias, float* y, const int64_t* geometry,
                      float low, float high, int32_t swish);
void daceml_pointwise(const float* x, const float* weight, const float* bias, const float* other, float* y,
                      const int64_t* geometry, float low, float high, int32_t swish);
void daceml_depthwise_gradients(const float* x, const float* dy, float* dweight, float* dbias,
                                const int64_t* geometry);
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

// As `convolution_backward`; the gradients of weight and bias are our own where operands lie in row-major order.
inline int32_t depthwise_backward(daceml_call* call, Fresh* dx, Fresh* dw, Fresh* dbias, AtenTensorHandle dy,
                                  AtenTensorHandle x, AtenTensorHandle w, int64_t rank, const int64_t* strides,
                                  const int64_t* pads, const int64_t* dilations, int64_t group) {
  static const int64_t zeros[2] = {0, 0};
  bool plain = false, also = false;
  DACEML_TRY(call, aoti_torch_is_contiguous(x, &plain) || aoti_torch_is_contiguous(dy, &also),
             "torch could not describe an operand");
  if (!plain || !also) {
    return convolution_backward(call, dx, dw, dbias, dy, x, w, rank, strides, pads, dilations, 0, zeros, group);
  }
  if (dx != nullptr && convolution_backward(call, dx, nullptr, nullptr, dy, x, w, rank, strides, pads, dilations, 0,
                                            zeros, group)) {
    return 1;
  }
  int64_t *in = nullptr, *out = nullptr, *window = nullptr;
  float *from = nullptr, *gradient = nullptr;
  DACEML_TRY(call,
             aoti_torch_get_sizes(x, &in) || aoti_torch_get_sizes(dy, &out) || aoti_torch_get_sizes(w, &window) ||
                 elements(x, &from) || elements(dy, &gradient),
             "torch could not describe an operand");
  if (dw != nullptr && dw->make(call, {aoti_torch_dtype_float32(), rank + 2, window})) return 1;
  if (dbias != nullptr && dbias->make(call, {aoti_torch_dtype_float32(), 1, &out[1]})) return 1;
  const bool image = rank == 2;  // a sequence is an image of one row
  const int64_t last = rank - 1;
  const int64_t geometry[] = {out[0],
                              out[1],
                              in[1],
                              image ? in[2] : 1,
                              in[rank + 1],
                              image ? out[2] : 1,
                              out[rank + 1],
                              image ? window[2] : 1,
                              window[rank + 1],
                              image ? strides[0] : 1,
                              strides[last],
                              image ? pads[0] : 0,
                              pads[last],
                              image ? dilations[0] : 1,
                              dilations[last]};
  daceml_depthwise_gradients(from, gradient, dw == nullptr ? nullptr : static_cast<float*>(dw->pointer()),
                             dbias == nullptr ? nullptr : static_cast<float*>(dbias->pointer()), geometry);
  return 0;
}

}  // namespace aten
}  // namespace daceml
