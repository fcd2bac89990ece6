// What the threads of a warp or of a block compute together: every one has the result.
//
// Order of operations: a butterfly over the lanes of each warp, then one over the warps, so all threads have the same
// bits, and every run has.
#pragma once

#include <daceml/device.h>

namespace daceml {

struct Sum {
    template <typename T>
    DACEML_HD static T join(T a, T b) {
        return a + b;
    }
    template <typename T>
    DACEML_HD static T identity() {
        return T(0);
    }
};
struct Product {
    template <typename T>
    DACEML_HD static T join(T a, T b) {
        return a * b;
    }
    template <typename T>
    DACEML_HD static T identity() {
        return T(1);
    }
};
// NaN if there is one.
struct Largest {
    template <typename T>
    DACEML_HD static T join(T a, T b) {
        return nan_max(a, b);
    }
    template <typename T>
    DACEML_HD static T identity() {
        return lowest<T>();
    }
};
struct Smallest {
    template <typename T>
    DACEML_HD static T join(T a, T b) {
        return nan_min(a, b);
    }
    template <typename T>
    DACEML_HD static T identity() {
        return highest<T>();
    }
};

// Over groups of `lanes` neighbours of a warp, a power of 2 up to 32; every lane of the warp takes part.
template <typename Operator, int lanes = 32, typename T>
__device__ __forceinline__ T warp_reduce(T value) {
    static_assert(lanes >= 1 && lanes <= 32 && (lanes & (lanes - 1)) == 0, "a power of 2");
#pragma unroll
    for (int distance = lanes / 2; distance > 0; distance /= 2)
        value = Operator::join(value, __shfl_xor_sync(0xffffffffu, value, distance));
    return value;
}

// Over all `threads` of a block along x, whole warps, 1,024 at most; all of them call it.
template <typename Operator, typename T>
__device__ __forceinline__ T block_reduce(T value, int threads) {
    value = warp_reduce<Operator>(value);
    if (threads > 32) {  // decided when this is compiled: it is inlined, and gets a literal
        DACEML_SHARED(T, partial, 32);
        const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
        if (lane == 0) partial[warp] = value;
        __syncthreads();
        value = lane < threads / 32 ? T(partial[lane]) : Operator::template identity<T>();
        value = warp_reduce<Operator>(value);
        __syncthreads();  // the next reduction writes where this one has read
    }
    return value;
}

namespace kernel {

// By the names that tasklets call.
template <typename T>
__device__ __forceinline__ T block_sum(T value, int threads) {
    return block_reduce<Sum>(value, threads);
}
template <typename T>
__device__ __forceinline__ T block_product(T value, int threads) {
    return block_reduce<Product>(value, threads);
}
template <typename T>
__device__ __forceinline__ T block_max(T value, int threads) {
    return block_reduce<Largest>(value, threads);
}
template <typename T>
__device__ __forceinline__ T block_min(T value, int threads) {
    return block_reduce<Smallest>(value, threads);
}

}  // namespace kernel
}  // namespace daceml
