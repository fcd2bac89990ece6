// Tiles that are read across memory: a line of each row at a time.
#pragma once

#include <cstddef>

namespace daceml {
namespace kernel {

// tile[r * width + c] = from[c * step + r] for r < rows and c < columns, both at most `width`.
template <int width, typename T>
inline void transpose_tile(
    T* __restrict tile, const T* __restrict from, std::ptrdiff_t rows, std::ptrdiff_t columns, std::ptrdiff_t step
) {
    if (rows == width) {
        for (std::ptrdiff_t c = 0; c < columns; ++c)
            for (int r = 0; r < width; ++r) tile[r * width + c] = from[c * step + r];
    } else {
        for (std::ptrdiff_t c = 0; c < columns; ++c)
            for (std::ptrdiff_t r = 0; r < rows; ++r) tile[r * width + c] = from[c * step + r];
    }
}

}  // namespace kernel
}  // namespace daceml
