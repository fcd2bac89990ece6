// Attention as its steps give it, as drivers call it; the loops are compiled once (daceml/codegen/attention.cpp).
#pragma once

#include <daceml/aten_call.h>

namespace daceml {
namespace aten {

// every program has its own
#pragma GCC visibility push(hidden)

// Attention over [batch, heads, length, features] with the numbers of its steps; `hides`: where the mask is -inf it
// takes the place of a score, and is added elsewhere. A scale of NaN means 1/sqrt(features).
int32_t attention_spelled(daceml_call* call, Fresh* y, Fresh* logsumexp, AtenTensorHandle q, AtenTensorHandle k,
                          AtenTensorHandle v, AtenTensorHandle mask, int32_t hides, double scale);

int32_t attention_spelled_backward(daceml_call* call, Fresh* dq, Fresh* dk, Fresh* dv, AtenTensorHandle dy,
                                   AtenTensorHandle q, AtenTensorHandle k, AtenTensorHandle v, AtenTensorHandle y,
                                   AtenTensorHandle logsumexp, AtenTensorHandle mask, int32_t hides, double scale);

#pragma GCC visibility pop

}  // namespace aten
}  // namespace daceml
