// 128-bit accesses to memory: several neighbours at once, from an address that is a multiple of their size.
#pragma once

#include <daceml/device.h>

namespace daceml {

template <typename T, int count>
struct alignas(sizeof(T) * count) Vector {
    T elements[count];
};

// `target[0 .. count) = source[0 .. count)` in one load.
template <int count, typename T>
__device__ __forceinline__ void load_vector(const T* __restrict__ source, T* __restrict__ target) {
    check_alignment(source, sizeof(T) * count);
    const Vector<T, count> loaded = *reinterpret_cast<const Vector<T, count>*>(source);
#pragma unroll
    for (int i = 0; i < count; ++i) target[i] = loaded.elements[i];
}

// The same in one store.
template <int count, typename T>
__device__ __forceinline__ void store_vector(const T* __restrict__ source, T* __restrict__ target) {
    check_alignment(target, sizeof(T) * count);
    Vector<T, count> stored;
#pragma unroll
    for (int i = 0; i < count; ++i) stored.elements[i] = source[i];
    *reinterpret_cast<Vector<T, count>*>(target) = stored;
}

}  // namespace daceml
