// What programs on a device call besides their kernels: copies, waiting, and looking at positions before they are used.
// Declared in daceml/toolchain/include/daceml/place.h.
#include <cuda_runtime.h>

#include <cstdint>
#include <cstdio>

namespace {

constexpr int threads = 256;

unsigned blocks_for(std::int64_t count) {
    const std::int64_t wanted = (count + threads - 1) / threads;
    return static_cast<unsigned>(wanted < 1024 ? wanted : 1024);
}

template <typename T>
__global__ void check_positions(const T* positions, std::int64_t count, std::int64_t offset, std::int64_t step,
                                std::int64_t lowest, std::int64_t extent) {
    const std::int64_t stride = std::int64_t(gridDim.x) * threads;
    for (std::int64_t n = std::int64_t(blockIdx.x) * threads + threadIdx.x; offset + n * step < count; n += stride) {
        const auto position = static_cast<std::int64_t>(positions[offset + n * step]);
        if (position >= lowest && position < extent) continue;
        printf("daceml: index %lld is outside [%lld, %lld)\n", static_cast<long long>(position),
               static_cast<long long>(lowest), static_cast<long long>(extent));
        __trap();
    }
}

template <typename T>
__global__ void check_starts(const T* starts, std::int64_t count) {
    const std::int64_t stride = std::int64_t(gridDim.x) * threads;
    for (std::int64_t n = std::int64_t(blockIdx.x) * threads + threadIdx.x; n < count; n += stride) {
        if (n == 0 ? starts[0] == 0 : starts[n] >= starts[n - 1]) continue;
        printf("daceml: starts of segments are not ascending from 0 at %lld\n", static_cast<long long>(n));
        __trap();
    }
}

}  // namespace

extern "C" {

const char* daceml_launch_error() { return cudaGetErrorString(cudaGetLastError()); }

int daceml_device_copy(void* stream, void* target, const void* source, std::int64_t bytes) {
    if (bytes == 0) return 0;
    return cudaMemcpyAsync(target, source, static_cast<std::size_t>(bytes), cudaMemcpyDeviceToDevice,
                           static_cast<cudaStream_t>(stream));
}

int daceml_device_finish(void* stream) {
    const auto queue = static_cast<cudaStream_t>(stream);
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    // what is captured does not run, and waiting for it would end the capture
    if (cudaStreamIsCapturing(queue, &status) != cudaSuccess || status != cudaStreamCaptureStatusNone) return 0;
    return cudaStreamSynchronize(queue);
}

int daceml_device_check_positions(void* stream, const void* positions, std::int64_t item_bytes, std::int64_t count,
                                  std::int64_t offset, std::int64_t step, std::int64_t lowest, std::int64_t extent) {
    const std::int64_t checked = count > offset ? (count - offset + step - 1) / step : 0;
    if (checked == 0) return 0;
    const auto queue = static_cast<cudaStream_t>(stream);
    if (item_bytes == 8) {
        check_positions<<<blocks_for(checked), threads, 0, queue>>>(static_cast<const std::int64_t*>(positions), count,
                                                                    offset, step, lowest, extent);
    } else {
        check_positions<<<blocks_for(checked), threads, 0, queue>>>(static_cast<const std::int32_t*>(positions), count,
                                                                    offset, step, lowest, extent);
    }
    return cudaPeekAtLastError();
}

int daceml_device_check_starts(void* stream, const void* starts, std::int64_t item_bytes, std::int64_t count) {
    if (count == 0) return 0;
    const auto queue = static_cast<cudaStream_t>(stream);
    if (item_bytes == 8) {
        check_starts<<<blocks_for(count), threads, 0, queue>>>(static_cast<const std::int64_t*>(starts), count);
    } else {
        check_starts<<<blocks_for(count), threads, 0, queue>>>(static_cast<const std::int32_t*>(starts), count);
    }
    return cudaPeekAtLastError();
}

}  // extern "C"
