// Convolutions of our own, for all programs: an object that is linked to the drivers that call it.
#include <omp.h>

#include <daceml/vector_math.h>

// every program has its own
#pragma GCC visibility push(hidden)
#include <daceml/depthwise.h>
#include <daceml/depthwise_gradients.h>
#include <daceml/pointwise.h>

extern "C" void daceml_depthwise(const float* x, const float* weight, const float* bias, float* y,
                                 const int64_t* geometry, float low, float high, int32_t swish) {
  const auto& numbers = *reinterpret_cast<const daceml::Depthwise*>(geometry);
  daceml::depthwise(x, weight, bias, y, numbers, low, high, swish != 0);
}

extern "C" void daceml_depthwise_gradients(const float* x, const float* dy, float* dweight, float* dbias,
                                           const int64_t* geometry) {
  const auto& numbers = *reinterpret_cast<const daceml::DepthwiseGradients*>(geometry);
  daceml::depthwise_gradients(x, dy, dweight, dbias, numbers);
}

extern "C" void daceml_pointwise(const float* x, const float* weight, const float* bias, const float* other, float* y,
                                 const int64_t* geometry, float low, float high, int32_t swish) {
  const auto& numbers = *reinterpret_cast<const daceml::Pointwise*>(geometry);
  daceml::pointwise::Call{numbers, x, weight, bias, other, y, low, high, swish != 0}.run();
}
#pragma GCC visibility pop
