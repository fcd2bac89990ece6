// One parallel loop over parts of several tensors.
#pragma once

#include <stdint.h>

#include <algorithm>

namespace daceml {

// Calls `body(tensor, first element, elements)` for parts that together are all tensors.
// starts: number of the first part of each tensor, and at the end the number of all parts.
template <typename Body>
inline void for_parts(const int64_t* starts, const int64_t* elements, int64_t tensors, int64_t part_elements,
                      bool parallel, Body body) {
  const int64_t parts = starts[tensors];
#pragma omp parallel for schedule(static) if (parallel)
  for (int64_t part = 0; part < parts; ++part) {
    const int64_t tensor = std::upper_bound(starts, starts + tensors + 1, part) - starts - 1;
    const int64_t first = (part - starts[tensor]) * part_elements;
    body(tensor, first, std::min(part_elements, elements[tensor] - first));
  }
}

}  // namespace daceml
