"""Kernels in CUDA's language, some of them wrong, and the functions that launch them."""

from __future__ import annotations

KERNELS = r"""
__global__ void doubled(const float* x, float* y, int64_t n) {
    const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < n) y[i] = 2 * x[i];
}
extern "C" int launch_doubled(void* stream, const float* x, float* y, int64_t n) {
    return DACEML_LAUNCH(doubled, (n + 63) / 64, 1, 1, 64, 1, 1, 0, stream, x, y, n);
}

__global__ void row_sums(const float* x, float* y, int64_t columns) {
    float sum = 0;
    for (int64_t i = threadIdx.x; i < columns; i += 96) sum += x[blockIdx.x * columns + i];
    sum = daceml::block_reduce<daceml::Sum>(sum, 96);
    float largest = -1;
    for (int64_t i = threadIdx.x; i < columns; i += 96)
        largest = nan_max(largest, x[blockIdx.x * columns + i]);
    largest = daceml::block_reduce<daceml::Largest>(largest, 96);
    if (threadIdx.x == 0) y[blockIdx.x] = sum / largest;
}
extern "C" int launch_row_sums(void* stream, const float* x, float* y, int64_t rows, int64_t columns) {
    return DACEML_LAUNCH(row_sums, rows, 1, 1, 96, 1, 1, 0, stream, x, y, columns);
}

__global__ void reversed(const float* x, float* y, bool with_barrier) {
    DACEML_SHARED(float, tile, 128);
    tile[threadIdx.x] = x[threadIdx.x];
    if (with_barrier) __syncthreads();
    y[threadIdx.x] = tile[127 - threadIdx.x];
}
extern "C" int launch_reversed(void* stream, const float* x, float* y, int64_t barrier) {
    return DACEML_LAUNCH(reversed, 1, 1, 1, 128, 1, 1, 0, stream, x, y, barrier);
}

__global__ void overwritten(float* y, bool with_barrier) {
    DACEML_SHARED(float, slot, 1);
    for (int round = 0; round < 2; ++round) {
        if (threadIdx.x == 0) slot[0] = round;
        __syncthreads();
        y[threadIdx.x] = slot[0];
        if (with_barrier) __syncthreads();
    }
}
extern "C" int launch_overwritten(void* stream, float* y, int64_t barrier) {
    return DACEML_LAUNCH(overwritten, 1, 1, 1, 64, 1, 1, 0, stream, y, barrier);
}

__global__ void in_warp(float* y, bool with_barrier) {
    DACEML_SHARED(float, tile, 32);
    tile[threadIdx.x] = threadIdx.x;
    if (with_barrier) __syncwarp();
    y[threadIdx.x] = tile[31 - threadIdx.x];
}
extern "C" int launch_in_warp(void* stream, float* y, int64_t barrier) {
    return DACEML_LAUNCH(in_warp, 1, 1, 1, 32, 1, 1, 0, stream, y, barrier);
}

__global__ void some_reach_the_barrier(int which) {
    if (which == 0 && threadIdx.x >= 32) return;
    if (which == 1 && threadIdx.x < 7) {
        __syncthreads();
    } else {
        __syncthreads();
    }
}
extern "C" int launch_some(void* stream, int64_t which) {
    return DACEML_LAUNCH(some_reach_the_barrier, 1, 1, 1, 64, 1, 1, 0, stream, int(which));
}

__global__ void shuffles(float* y, int which) {
    float value = threadIdx.x;
    if (which == 0) value = __shfl_xor_sync(0xffffffffu, value, 1);
    if (which == 1) value = __shfl_down_sync(0xffffffffu, value, 4, 8);
    if (which == 2) value = __shfl_up_sync(0xffffffffu, value, 3);
    if (which == 3) value = __shfl_sync(0xffffffffu, value, 5, 16);
    if (which == 4 && threadIdx.x < 16) value = __shfl_xor_sync(0x0000ffffu, value, 8);
    if (which == 5 && threadIdx.x < 16) value = __shfl_xor_sync(0xffffffffu, value, 8);
    if (which == 6 && threadIdx.x < 16) value = __shfl_xor_sync(0x0000ffffu, value, 16);
    if (which == 7) value = __shfl_xor_sync(threadIdx.x < 16 ? 0x0000ffffu : 0xffff0000u, value, 3);
    if (which == 8) value = __ballot_sync(0xffffffffu, threadIdx.x % 2) == 0xaaaaaaaau;
    y[threadIdx.x] = value;
}
extern "C" int launch_shuffles(void* stream, float* y, int64_t which) {
    return DACEML_LAUNCH(shuffles, 1, 1, 1, 32, 1, 1, 0, stream, y, int(which));
}

__global__ void moved(const float* x, float* y, int64_t from, int64_t to) {
    float held[4];
    daceml::kernel::load_vector<4>(x + from + 4 * threadIdx.x, held, 4);
    daceml::kernel::store_vector<4>(held, y + to + 4 * threadIdx.x, 4);
}
extern "C" int launch_moved(void* stream, const float* x, float* y, int64_t from, int64_t to, int64_t count) {
    return DACEML_LAUNCH(moved, 1, 1, 1, count, 1, 1, 0, stream, x, y, from, to);
}

__global__ void counted(float* y) { atomicAdd(y, 1.0f); }
extern "C" int launch_counted(void* stream, float* y, int64_t blocks) {
    return DACEML_LAUNCH(counted, blocks, 2, 3, 4, 4, 2, 0, stream, y);
}

__global__ void unwritten(float* y) {
    DACEML_SHARED(float, tile, 64);
    y[threadIdx.x] = tile[threadIdx.x];
}
extern "C" int launch_unwritten(void* stream, float* y) {
    return DACEML_LAUNCH(unwritten, 1, 1, 1, 64, 1, 1, 0, stream, y);
}
"""
