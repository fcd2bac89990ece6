// What generated device code stands on, under nvcc and under a C++ compiler that emulates a device.
#pragma once

#include <cstddef>
#include <cstdint>

#if defined(__CUDACC__)
#include <cuda_runtime.h>

// An array of the block: T name[count].
#define DACEML_SHARED(T, name, count) __shared__ T name[count]
// Run `kernel(...)` on a stream; 0, or CUDA's code of the error. There may be no block where a size is 0.
#define DACEML_LAUNCH(kernel, gx, gy, gz, bx, by, bz, shared_bytes, stream, ...)                                        \
    ((gx) == 0 || (gy) == 0 || (gz) == 0                                                                                 \
         ? 0                                                                                                             \
         : (kernel<<<dim3(gx, gy, gz), dim3(bx, by, bz), shared_bytes, static_cast<cudaStream_t>(stream)>>>(__VA_ARGS__), \
            static_cast<int>(cudaPeekAtLastError())))
#else
#include <daceml/emulation/language.h>
#endif

#include <daceml/scalar_math.h>

namespace daceml {

template <typename T>
DACEML_HD T lowest() {
    if constexpr (std::is_floating_point_v<T>) return -std::numeric_limits<T>::infinity();
    return std::numeric_limits<T>::lowest();
}
template <typename T>
DACEML_HD T highest() {
    if constexpr (std::is_floating_point_v<T>) return std::numeric_limits<T>::infinity();
    return std::numeric_limits<T>::max();
}

}  // namespace daceml
