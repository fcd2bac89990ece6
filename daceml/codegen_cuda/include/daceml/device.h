// What generated device code stands on, under nvcc and under a C++ compiler that emulates a device.
#pragma once

#include <cstddef>
#include <cstdint>

#if defined(__CUDACC__)
#include <cuda_runtime.h>

#include <atomic>

// An array of the block: T name[count].
#define DACEML_SHARED(T, name, count) __shared__ T name[count]
// Run `kernel(...)` on a stream; 0, or CUDA's code of the error. There may be no block where a size is 0.
#define DACEML_LAUNCH(kernel, gx, gy, gz, bx, by, bz, shared_bytes, stream, ...)                                        \
    ((gx) == 0 || (gy) == 0 || (gz) == 0                                                                                 \
         ? 0                                                                                                             \
         : (kernel<<<dim3(gx, gy, gz), dim3(bx, by, bz), shared_bytes, static_cast<cudaStream_t>(stream)>>>(__VA_ARGS__), \
            static_cast<int>(cudaPeekAtLastError())))

namespace daceml {

// Threads that a launch keeps the current device busy with: 8,192 for each multiprocessor, which holds 2,048 at most. So
// there is four times what it holds, and whoever ends early is followed by others; more of them would only begin more
// often. Source: Harris, "CUDA Pro Tip: Write Flexible Kernels with Grid-Stride Loops" (2013): 32 blocks of 256 each.
// The runtime is asked once for each device; neither call waits for it, and both may happen while a graph is captured.
inline std::int64_t threads_at_once() {
    constexpr int of_a_multiprocessor = 8192, devices = 64;
    static std::atomic<int> known[devices];
    int device = 0, multiprocessors = 0;
    if (cudaGetDevice(&device) != cudaSuccess) return of_a_multiprocessor;  // the launch will tell
    if (device < devices) multiprocessors = known[device].load(std::memory_order_relaxed);
    if (multiprocessors == 0) {
        if (cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device) != cudaSuccess)
            return of_a_multiprocessor;
        if (device < devices) known[device].store(multiprocessors, std::memory_order_relaxed);
    }
    return std::int64_t(multiprocessors) * of_a_multiprocessor;
}

}  // namespace daceml
#else
#include <daceml/emulation/language.h>
#endif

#include <daceml/scalar_math.h>

namespace daceml {

// Blocks of a launch whose kernel goes round: as many as are wanted, if the device has them at once, else so many that
// all of them go round equally often, but for the last time.
inline std::int64_t blocks_at_once(std::int64_t wanted, std::int64_t threads) {
    const std::int64_t fit = threads_at_once() / threads, most = fit > 0 ? fit : 1;
    if (wanted <= most) return wanted;
    const std::int64_t rounds = (wanted + most - 1) / most;
    return (wanted + rounds - 1) / rounds;
}

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
