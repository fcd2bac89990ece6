// Recurrent layers as drivers call them; the loops are compiled once (daceml/codegen/recurrent_layers.cpp).
#pragma once

#include <daceml/aten_call.h>

namespace daceml {
namespace aten {

// every program has its own
#pragma GCC visibility push(hidden)

// X: [steps, batch, inputs]; results, the state, the bias and initial states may be null.
int32_t recurrent_layer(daceml_call* call, AtenTensorHandle y, AtenTensorHandle last_h, AtenTensorHandle last_c,
                        AtenTensorHandle state, AtenTensorHandle x, AtenTensorHandle w, AtenTensorHandle r,
                        AtenTensorHandle b, AtenTensorHandle first_h, AtenTensorHandle first_c, int64_t kind,
                        int64_t reverse);

int32_t recurrent_layer_backward(daceml_call* call, AtenTensorHandle dx, AtenTensorHandle dw, AtenTensorHandle dr,
                                 AtenTensorHandle db, AtenTensorHandle dfirst_h, AtenTensorHandle dfirst_c,
                                 AtenTensorHandle state, AtenTensorHandle x, AtenTensorHandle w, AtenTensorHandle r,
                                 AtenTensorHandle dy, AtenTensorHandle dlast_h, AtenTensorHandle dlast_c, int64_t kind,
                                 int64_t reverse);

#pragma GCC visibility pop

}  // namespace aten
}  // namespace daceml
